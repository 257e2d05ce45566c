//! Group Z: zombies, and what networks do to them.

use std::time::Duration;

use super::{Case, Ended, Need, Trial};
use crate::answer::Answer;
use crate::evidence::Minimum;
use crate::manifest::Policy;
use crate::op::Op;
use crate::proxy::{Direction, Rule};
use crate::subject::{Hook, Part, Route};
use crate::verdict::Level;
use crate::wait;

pub(super) const CASES: &[Case] = &[
    Case {
        id: "Z01",
        title: "a client that stops before it sends",
        rule: "A write that its client decided on while it held the lock is refused once a newer token has written.",
        why: "A garbage collection, a suspended laptop, a container that is frozen: the client checks its lease, sleeps, \
              and sends.",
        level: Level::L2,
        needs: &[],
        minima: &[Minimum::Accepted(40), Minimum::Refused(20), Minimum::Overlapping(10)],
        run: stopped_before_sending,
    },
    Case {
        id: "Z02",
        title: "a request that is half sent",
        rule: "The token is compared when the write is done, not when the head of the request arrives.",
        why: "A server that checks the token in a middleware, and writes when the body is complete, has a window as long \
              as its slowest client likes.",
        level: Level::L2,
        needs: &[Need::Wire],
        minima: &[Minimum::Accepted(20), Minimum::Refused(10), Minimum::Overlapping(10)],
        run: half_sent,
    },
    Case {
        id: "Z03",
        title: "delayed past the next token",
        rule: "A write that the network delivers after a newer token has written is refused.",
        why: "Packets wait in switches, proxies and queues for longer than any lease.",
        level: Level::L2,
        needs: &[],
        minima: &[Minimum::Accepted(20), Minimum::Refused(10), Minimum::Overlapping(10)],
        run: delayed,
    },
    Case {
        id: "Z04",
        title: "an old write is replayed",
        rule: "A copy of a write that was accepted long ago is refused once a newer token has written.",
        why: "Proxies and clients repeat requests whose answer they did not see, minutes later and without asking.",
        level: Level::L2,
        needs: &[],
        minima: &[Minimum::Accepted(20), Minimum::Refused(20)],
        run: replayed,
    },
    Case {
        id: "Z05",
        title: "a write of the current token is replayed",
        rule: "Under `gt` a copy of a write is refused; under `ge` a fence cannot tell it from a new one.",
        why: "A copy that arrives after a later write of the same holder brings the old value back. Who cannot live with \
              that needs `gt`, a condition, or a key for each request.",
        level: Level::L2,
        needs: &[],
        minima: &[Minimum::Accepted(3)],
        run: current_replayed,
    },
    Case {
        id: "Z06",
        title: "requests that arrive in another order",
        rule: "Whatever the order in which requests arrive, the newest token has the last word.",
        why: "Two requests on two connections have no order; the one sent first often arrives last.",
        level: Level::L2,
        needs: &[],
        minima: &[Minimum::Accepted(20), Minimum::Refused(20), Minimum::Overlapping(50)],
        run: reordered,
    },
    Case {
        id: "Z07",
        title: "a lost answer, and a retry",
        rule: "A client that did not get its answer can repeat the write while its token is current, and not after.",
        why: "A retry that is taken for a stale write makes a client give up a lock it holds; one that is let in \
              later undoes what its successor did.",
        level: Level::L2,
        needs: &[],
        minima: &[Minimum::Accepted(20), Minimum::Refused(20)],
        run: retried,
    },
    Case {
        id: "Z08",
        title: "stopped with both requests waiting",
        rule: "When the resource goes on after a pause, and old and new token wait for it, the new one wins.",
        why: "A virtual machine that is moved, or a disk that hangs: both clients have sent, and nobody knows in which \
              order they are read.",
        level: Level::L2,
        needs: &[Need::Hook(Hook::Pause), Need::Hook(Hook::Resume)],
        minima: &[Minimum::Accepted(8), Minimum::Refused(4), Minimum::Overlapping(4)],
        run: stopped_resource,
    },
    Case {
        id: "Z09",
        title: "a connection that breaks in the middle",
        rule: "A request that arrives in part is done as a whole or not at all, and never after a newer token.",
        why: "A body that ends early is half a value to a server that does not count its bytes.",
        level: Level::L2,
        needs: &[Need::Wire],
        minima: &[Minimum::Accepted(20), Minimum::Refused(10)],
        run: broken_off,
    },
];

/// The old and the new token of a round, and one between them that is never accepted.
struct Tokens {
    old: u64,
    between: u64,
    new: u64,
}

fn tokens(t: &Trial<'_>, round: u64) -> Tokens {
    let old = 5 + round;
    match t.manifest().policy {
        Policy::Ge => Tokens { old, between: old, new: old + 1 },
        // A used token would be refused whatever the fence is.
        Policy::Gt => Tokens { old, between: old + 1, new: old + 2 },
    }
}

/// Fails if both writes were accepted. The old write was not completely sent when the newer one was answered. The
/// checker cannot detect this: by its call time alone, the old write could have come first.
fn came_too_late(t: &Trial<'_>, late: (u32, &Answer), newer: (u32, &Answer)) -> Result<(), Ended> {
    if !late.1.is_ok() || !newer.1.is_ok() {
        return Ok(());
    }
    let (late, newer) = (t.last(late.0), t.last(newer.0));
    let sentence = format!(
        "write #{late} was accepted, but it was complete only after write #{newer} with a newer token had been answered: it was \
         already fenced."
    );
    Err(t.fail(&[late, newer], sentence))
}

/// Reads the value, and checks whether the old client can still write.
fn look(t: &Trial<'_>, res: &str, late: u64) -> Result<(), Ended> {
    t.peek(1, res)?;
    t.call(0, t.write_op(0, res, late))?;
    t.peek(1, res)?;
    Ok(())
}

fn stopped_before_sending(t: &Trial<'_>) -> Result<(), Ended> {
    for round in t.rounds(25) {
        let res = t.resource();
        let Tokens { old, between, new } = tokens(t, round);
        t.call(0, t.write_op(0, &res, 1))?;
        let slept = t.build(0, t.write_op(0, &res, old));
        let newer = t.call(1, t.write_op(1, &res, new))?;
        let late = slept.send()?;
        came_too_late(t, (0, &late), (1, &newer))?;
        look(t, &res, between)?;
    }
    Ok(())
}

fn half_sent(t: &Trial<'_>) -> Result<(), Ended> {
    for part in [Part::Head, Part::HalfBody] {
        for round in t.rounds(10) {
            let res = t.resource();
            let Tokens { old, between, new } = tokens(t, round);
            t.call(0, t.write_op(0, &res, 1))?;
            let held = t.begin(0, &t.write_op(0, &res, old), part)?;
            let newer = t.call(1, t.write_op(1, &res, new))?;
            let late = held.finish()?;
            came_too_late(t, (0, &late), (1, &newer))?;
            look(t, &res, between)?;
        }
    }
    Ok(())
}

/// How long requests may take to reach the proxy.
const ARRIVED: Duration = Duration::from_secs(5);

/// Sends these requests, makes a newer one while they are held, and then lets them arrive.
fn arrive_late(t: &Trial<'_>, requests: Vec<(u32, Op)>, (newest, newer): (u32, Op)) -> Result<(), Ended> {
    let Some(proxy) = t.subject().proxy() else {
        let built: Vec<_> = requests.into_iter().map(|(client, op)| (client, t.build(client, op))).collect();
        let newer = t.call(newest, newer)?;
        return built.into_iter().try_for_each(|(client, built)| {
            let late = built.send()?;
            came_too_late(t, (client, &late), (newest, &newer))
        });
    };
    proxy.set(Direction::Up, Rule::Hold);
    let arrived = proxy.count(Direction::Up).chunks + requests.len() as u64;
    let clients: Vec<u32> = requests.iter().map(|(client, _)| *client).collect();
    let (late, (newer, arrived)) = t.meanwhile(requests, Route::Proxied, || {
        let arrived = t.until(ARRIVED, || proxy.count(Direction::Up).chunks >= arrived);
        let newer = t.call(newest, newer);
        proxy.pass();
        newer.map(|newer| (newer, arrived))
    })?;
    clients.into_iter().zip(&late).try_for_each(|(client, late)| came_too_late(t, (client, late), (newest, &newer)))?;
    if arrived { Ok(()) } else { Err(Ended::Unknown("the requests did not come by the proxy".to_owned())) }
}

fn delayed(t: &Trial<'_>) -> Result<(), Ended> {
    for round in t.rounds(20) {
        let res = t.resource();
        let Tokens { old, between, new } = tokens(t, round);
        t.call(0, t.write_op(0, &res, 1))?;
        arrive_late(t, vec![(0, t.write_op(0, &res, old))], (1, t.write_op(1, &res, new)))?;
        look(t, &res, between)?;
    }
    Ok(())
}

fn replayed(t: &Trial<'_>) -> Result<(), Ended> {
    let mut random = t.random(0);
    for _ in t.rounds(15) {
        let res = t.resource();
        let mut sent = Vec::new();
        for client in 0..4 {
            let op = t.write_op(client, &res, 5 + u64::from(client));
            t.call(client, op.clone())?;
            sent.push((client, op, t.last(client)));
        }
        // All but the latest, in any order, one of them twice.
        sent.pop();
        for _ in 0..4 {
            let (client, op, id) = &sent[random.below(sent.len() as u64) as usize];
            t.call_copy(*client, op.clone(), *id)?;
            t.peek(4, &res)?;
        }
    }
    Ok(())
}

fn current_replayed(t: &Trial<'_>) -> Result<(), Ended> {
    let mut brought_back = 0;
    let rounds = t.scaled(5);
    for round in t.rounds(5) {
        let res = t.resource();
        let token = 5 + round;
        let op = t.write_op(0, &res, token);
        t.accepted(0, op.clone())?;
        let first = t.last(0);
        // A later write of the same holder, which `gt` does not allow.
        t.call(0, t.write_op(0, &res, token))?;
        let copy = t.call_copy(0, op, first)?;
        brought_back += u64::from(copy.is_ok());
        t.peek(1, &res)?;
    }
    if brought_back == 0 {
        return Ok(());
    }
    Err(Ended::Info(format!(
        "a copy of an earlier write was accepted after a later write with the same token, {brought_back} of {rounds} \
         times; policy `ge` allows it, and the fence does not protect a holder from its own copies"
    )))
}

fn reordered(t: &Trial<'_>) -> Result<(), Ended> {
    const CLIENTS: u32 = 5;
    let mut random = t.random(0);
    for round in t.rounds(20) {
        let res = t.resource();
        t.call(0, t.write_op(0, &res, 1))?;
        let requests: Vec<_> =
            (0..CLIENTS).map(|client| (client, t.write_op(client, &res, 5 + u64::from(client)))).collect();
        if round % 2 == 0 {
            let mut built: Vec<_> = requests.into_iter().map(|(client, op)| t.build(client, op)).collect();
            while !built.is_empty() {
                built.swap_remove(random.below(built.len() as u64) as usize).send()?;
                t.peek(CLIENTS, &res)?;
            }
        } else {
            let newer = 5 + u64::from(CLIENTS);
            arrive_late(t, requests, (CLIENTS, t.write_op(CLIENTS, &res, newer)))?;
        }
        look(t, &res, 3 + u64::from(CLIENTS))?;
    }
    Ok(())
}

/// Makes a request whose answer never arrives.
fn unanswered(t: &Trial<'_>, client: u32, op: Op) -> Result<(), Ended> {
    let Some(proxy) = t.subject().proxy() else { return t.call_deaf(client, op) };
    let before = proxy.count(Direction::Down).dropped;
    proxy.set(Direction::Down, Rule::Drop);
    t.meanwhile(vec![(client, op)], Route::Proxied, || {
        t.until(ARRIVED, || proxy.count(Direction::Down).dropped > before);
        // Cut the connection instead of waiting for the client's timeout.
        proxy.cut();
        proxy.pass();
        Ok(())
    })?;
    Ok(())
}

fn retried(t: &Trial<'_>) -> Result<(), Ended> {
    for round in t.rounds(20) {
        let res = t.resource();
        let Tokens { old, between, new } = tokens(t, round);
        t.call(0, t.write_op(0, &res, 1))?;
        let op = t.write_op(0, &res, old);
        unanswered(t, 0, op.clone())?;
        let first = t.last(0);
        t.call_copy(0, op.clone(), first)?;
        t.peek(1, &res)?;
        t.call(1, t.write_op(1, &res, new))?;
        t.call_copy(0, op, first)?;
        look(t, &res, between)?;
    }
    Ok(())
}

fn stopped_resource(t: &Trial<'_>) -> Result<(), Ended> {
    let (rounds, mut waited) = (t.scaled(10), 0);
    for round in t.rounds(10) {
        let res = t.resource();
        let Tokens { old, between, new } = tokens(t, round);
        t.call(0, t.write_op(0, &res, 1))?;
        let mut requests = vec![(0, t.write_op(0, &res, old)), (1, t.write_op(1, &res, new))];
        if round % 2 == 1 {
            requests.reverse();
        }
        let begun = t.begun() + 2;
        t.pause()?;
        let (_, both) = t.meanwhile(requests, Route::Direct, || {
            t.until(ARRIVED, || t.begun() >= begun);
            // On loopback this is ample time for the bytes to arrive.
            wait::pause(Duration::from_millis(20));
            let both = t.is_waiting(0) && t.is_waiting(1);
            t.resume().map(|()| both)
        })?;
        waited += u64::from(both);
        look(t, &res, between)?;
    }
    if waited * 2 < rounds {
        return Err(Ended::Unknown(format!(
            "the pause held both requests in only {waited} of {rounds} rounds: does the hook stop what answers?"
        )));
    }
    Ok(())
}

fn broken_off(t: &Trial<'_>) -> Result<(), Ended> {
    for part in [Part::Head, Part::HalfBody] {
        for round in t.rounds(10) {
            let res = t.resource();
            let Tokens { old, between, new } = tokens(t, round);
            t.call(0, t.write_op(0, &res, 1))?;
            // Long enough that half of it is never a value that was written.
            let value = format!("{}-{}", t.value(), "x".repeat(200));
            t.begin(0, &Op::write(&res, old, &t.holder(0), &value), part)?.abandon()?;
            t.peek(2, &res)?;
            t.call(1, t.write_op(1, &res, new))?;
            look(t, &res, between)?;
            t.call(1, t.write_op(1, &res, new + 1))?;
            look(t, &res, new)?;
        }
    }
    Ok(())
}
