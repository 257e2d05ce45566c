//! Group C: clients that act at the same time.

use std::time::{Duration, Instant};

use super::{Case, Ended, Need, Trial};
use crate::answer::Answer;
use crate::evidence::Minimum;
use crate::manifest::Policy;
use crate::op::{Op, Verb};
use crate::verdict::Level;

pub(super) const CASES: &[Case] = &[
    Case {
        id: "C01",
        title: "a token against the next one",
        rule: "When t and t+1 write at the same moment, the resource is left with t+1, whichever came first.",
        why: "A fence that is read first and raised later lets both through, and the older write can land last: \
              the classic lost update of a lock that changed hands.",
        level: Level::L2,
        needs: &[],
        minima: &[Minimum::Accepted(50), Minimum::Refused(50), Minimum::Overlapping(50)],
        run: next_token,
    },
    Case {
        id: "C02",
        title: "eight writers with random tokens",
        rule: "Whatever the order in which tokens arrive, there is an order of the writes that explains every answer.",
        why: "With more than two writers a race needs no bad luck: three takeovers in a row during a network \
              partition are enough.",
        level: Level::L2,
        needs: &[],
        minima: &[Minimum::Accepted(50), Minimum::Refused(50), Minimum::Overlapping(200)],
        run: random_tokens,
    },
    Case {
        id: "C03",
        title: "writers that share a token",
        rule: "Under `ge` all threads of one holder may write at once with its token, and none is refused.",
        why: "A service with several workers under one lock would lose writes at random if the token counted as used.",
        level: Level::L2,
        needs: &[Need::Policy(Policy::Ge)],
        minima: &[Minimum::Accepted(50), Minimum::Overlapping(200)],
        run: shared_token,
    },
    Case {
        id: "C04",
        title: "sixteen at once with one token",
        rule: "Under `gt` exactly one of many that use a token at the same moment is accepted.",
        why: "Who relies on a token being used once (a payment, a migration step) does the thing twice if two get through.",
        level: Level::L2,
        needs: &[Need::Policy(Policy::Gt)],
        minima: &[Minimum::Accepted(5), Minimum::Refused(75), Minimum::Overlapping(200)],
        run: exactly_one,
    },
    Case {
        id: "C05",
        title: "readers and writers",
        rule: "A read sees the latest write that was answered before it began, and values never go back.",
        why: "A reader that is served from a cache decides on what a fenced-off client wrote long ago.",
        level: Level::L2,
        needs: &[Need::Verb(Verb::Read), Need::FreshReads],
        minima: &[Minimum::Accepted(50), Minimum::Read(100), Minimum::Overlapping(200)],
        run: readers_and_writers,
    },
    Case {
        id: "C06",
        title: "a claim against a write",
        rule: "After a claim was answered no write with an older token lands, and the value it returned was the last one.",
        why: "A new leader reads the state it takes over; a write of the old leader that lands after that read is lost \
              or, worse, half known.",
        level: Level::L2,
        needs: &[Need::Verb(Verb::Claim)],
        minima: &[Minimum::Accepted(60), Minimum::Refused(20), Minimum::Overlapping(20)],
        run: claim_against_write,
    },
    Case {
        id: "C07",
        title: "two instances, one store",
        rule: "What one process has accepted, every other process in front of the same store knows at once.",
        why: "A fence kept in the memory of each process is right in every test with one process, and wrong behind the \
              first load balancer.",
        level: Level::L2,
        needs: &[Need::Instances(2)],
        minima: &[Minimum::Accepted(40), Minimum::Refused(20), Minimum::Overlapping(20)],
        run: instances,
    },
    Case {
        id: "C08",
        title: "a thousand resources",
        rule: "Each resource has a fence of its own, however many there are and however they are mixed.",
        why: "A fence per connection, per shard or for all refuses the rightful holder of another resource, or lets \
              its zombie in.",
        level: Level::L2,
        needs: &[],
        minima: &[Minimum::Accepted(400), Minimum::Refused(200)],
        run: many_resources,
    },
    Case {
        id: "C09",
        title: "conditional writes at once",
        rule: "Of several conditional writes that expect the same value, one at most is done, and only under a current token.",
        why: "A condition that is checked outside the fenced step loses updates although every client did it right.",
        level: Level::L2,
        needs: &[Need::Verb(Verb::Cas)],
        minima: &[Minimum::Accepted(30), Minimum::Overlapping(100)],
        run: conditional_writes,
    },
    Case {
        id: "C10",
        title: "the highest token succeeds in the end",
        rule: "However many older clients insist, the client with the highest token gets its write done.",
        why: "A resource that refuses everybody is safe and useless; one where zombies can starve the rightful holder \
              turns a pause into an outage.",
        level: Level::L2,
        needs: &[],
        minima: &[Minimum::Accepted(10), Minimum::Refused(20), Minimum::Overlapping(100)],
        run: highest,
    },
];

/// A token behind the newest. Under `gt` it leaves one unused token between the two.
fn behind(t: &Trial<'_>, newest: u64) -> u64 {
    match t.manifest().policy {
        Policy::Ge => newest - 1,
        Policy::Gt => newest - 2,
    }
}

/// Checks the result of a race: the value, and whether a token behind the newest is accepted.
fn look(t: &Trial<'_>, client: u32, res: &str, late: u64) -> Result<(), Ended> {
    if t.has(Verb::Read) {
        t.call(client, Op::read(res))?;
    }
    t.call(client, t.write_op(client, res, late))?;
    Ok(())
}

fn next_token(t: &Trial<'_>) -> Result<(), Ended> {
    let mut random = t.random(0);
    for round in t.races(500) {
        let res = t.resource();
        let newest = 3 + random.below(1000);
        let old = behind(t, newest);
        // Large values may take another code path.
        let write = |client, token| match round % 4 {
            3 => (client, t.large_op(client, &res, token)),
            _ => (client, t.write_op(client, &res, token)),
        };
        t.race(vec![write(0, old), write(1, newest)])?;
        // Under `gt` the old token may have been used, and would be refused for that.
        look(t, 0, &res, newest - 1)?;
    }
    Ok(())
}

fn random_tokens(t: &Trial<'_>) -> Result<(), Ended> {
    const WRITERS: u32 = 8;
    let mut random = t.random(0);
    for _ in t.races(30) {
        let res = t.resource();
        let mut highest = 0;
        for step in 0..4 {
            let writes = (0..WRITERS).map(|client| {
                let token = 2 + step * 3 + random.below(8);
                highest = highest.max(token);
                (client, t.write_op(client, &res, token))
            });
            t.race(writes.collect())?;
            look(t, WRITERS, &res, highest - 1)?;
        }
    }
    Ok(())
}

fn shared_token(t: &Trial<'_>) -> Result<(), Ended> {
    const WRITERS: u32 = 8;
    let holder = t.holder(0);
    for round in t.races(25) {
        let res = t.resource();
        for step in 0..3 {
            let token = 7 + round + step;
            let write = |client| (client, Op::write(&res, token, &holder, &t.value()));
            t.race((0..WRITERS).map(write).collect())?;
            if t.has(Verb::Read) {
                t.call(0, Op::read(&res))?;
            }
        }
        t.call(WRITERS, t.write_op(WRITERS, &res, 1))?;
    }
    Ok(())
}

fn exactly_one(t: &Trial<'_>) -> Result<(), Ended> {
    const WRITERS: u32 = 16;
    let holder = t.holder(0);
    for round in t.races(30) {
        let res = t.resource();
        let write = |client| (client, Op::write(&res, 5 + round, &holder, &t.value()));
        let answers = t.race((0..WRITERS).map(write).collect())?;
        let done = answers.iter().filter(|answer| answer.is_ok()).count();
        let open = answers.iter().any(|answer| !answer.is_ok() && !answer.is_stale());
        if done > 1 || (done == 0 && !open) {
            let writes: Vec<u64> = (0..WRITERS).map(|client| t.last(client)).collect();
            let sentence =
                format!("{done} of {WRITERS} writes with token {} to {res} were accepted; it must be one.", 5 + round);
            return Err(t.fail(&writes, sentence));
        }
        if t.has(Verb::Read) {
            t.call(0, Op::read(&res))?;
        }
    }
    Ok(())
}

fn readers_and_writers(t: &Trial<'_>) -> Result<(), Ended> {
    const EACH: u32 = 4;
    let mut random = t.random(0);
    for _ in t.races(25) {
        let res = t.resource();
        for step in 0..5 {
            let writes = (0..EACH).map(|client| (client, t.write_op(client, &res, 1 + step * 2 + random.below(4))));
            let reads = (EACH..2 * EACH).map(|client| (client, Op::read(&res)));
            t.race(writes.chain(reads).collect())?;
            // Read through another client, and so perhaps through another process.
            for client in [EACH, EACH + 1] {
                t.call(client, Op::read(&res))?;
            }
        }
    }
    Ok(())
}

fn claim_against_write(t: &Trial<'_>) -> Result<(), Ended> {
    let mut random = t.random(0);
    for _ in t.races(150) {
        let res = t.resource();
        let newest = 4 + random.below(1000);
        t.call(0, t.write_op(0, &res, 1))?;
        let claim = || Op::claim(&res, newest, &t.holder(1));
        t.race(vec![(0, t.write_op(0, &res, behind(t, newest))), (1, claim())])?;
        t.call(1, claim())?;
        t.call(0, t.write_op(0, &res, newest - 1))?;
        t.call(1, claim())?;
    }
    Ok(())
}

fn instances(t: &Trial<'_>) -> Result<(), Ended> {
    let instances = u32::try_from(t.subject().instances()).unwrap_or(u32::MAX).min(8);
    for _ in t.rounds(20) {
        let res = t.resource();
        // Every process has seen the resource before the next one raises the fence.
        for client in 0..instances {
            t.accepted(client, t.write_op(client, &res, 10 + u64::from(client)))?;
        }
        for raises in 0..instances {
            let token = 100 + 10 * u64::from(raises);
            t.accepted(raises, t.write_op(raises, &res, token))?;
            for late in 0..instances {
                t.call(late, t.write_op(late, &res, token - 1))?;
                if t.has(Verb::Read) {
                    t.call(late, Op::read(&res))?;
                }
            }
        }
    }
    let mut random = t.random(0);
    for round in t.races(100) {
        let res = t.resource();
        let newest = 3 + random.below(1000);
        let (old, new) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        t.race(vec![(old, t.write_op(old, &res, behind(t, newest))), (new, t.write_op(new, &res, newest))])?;
        look(t, old, &res, newest - 1)?;
        look(t, new, &res, newest - 1)?;
    }
    Ok(())
}

fn many_resources(t: &Trial<'_>) -> Result<(), Ended> {
    const CLIENTS: u32 = 8;
    let mut random = t.random(0);
    let most = t.manifest().token_max.saturating_sub(10).min(1_000_000);
    let resources: Vec<(String, u64)> = (0..t.scaled(1000)).map(|_| (t.resource(), 2 + random.below(most))).collect();
    let count = resources.len() as u64;
    // First each resource gets its fence from its own client and that client's successor, then the clients return.
    let share = |client: u32| resources.iter().skip(client as usize).step_by(CLIENTS as usize);
    t.parallel(CLIENTS, |client| {
        let heir = CLIENTS + client;
        let mut random = t.random(1 + u64::from(client));
        for (res, token) in share(client) {
            t.call(client, t.write_op(client, res, *token))?;
            t.call(heir, t.write_op(heir, res, token + 1))?;
            // A resource of another client, whose tokens are unrelated to these.
            let (other, base) = &resources[random.below(count) as usize];
            t.call(heir, t.write_op(heir, other, base - 1 + random.below(3)))?;
        }
        Ok(())
    })?;
    t.parallel(CLIENTS, |client| {
        for (res, token) in share(client) {
            t.call(client, t.write_op(client, res, *token))?;
            if t.has(Verb::Read) {
                t.call(client, Op::read(res))?;
            }
        }
        Ok(())
    })
}

fn conditional_writes(t: &Trial<'_>) -> Result<(), Ended> {
    const CLIENTS: u32 = 4;
    let mut random = t.random(0);
    let holder = t.holder(0);
    for _ in t.races(30) {
        let res = t.resource();
        let mut known: Option<String> = None;
        let mut token = 10;
        for step in 0..6 {
            // All under one token where that is allowed, sometimes one of them under a stale one.
            let mut tokens = [token; CLIENTS as usize];
            match t.manifest().policy {
                Policy::Ge if step % 2 == 0 => {}
                Policy::Ge | Policy::Gt => (0..).zip(&mut tokens).for_each(|(more, token)| *token += more),
            }
            if random.chance(50) {
                tokens[random.below(u64::from(CLIENTS)) as usize] = token - 2;
            }
            token = tokens.iter().copied().max().unwrap_or(token) + 1;
            let values: Vec<String> = tokens.iter().map(|_| t.value()).collect();
            let requests = (0..CLIENTS).zip(tokens).zip(&values);
            let requests = requests
                .map(|((client, token), value)| (client, Op::cas(&res, token, &holder, known.as_deref(), value)));
            let answers = t.race(requests.collect())?;
            let done = answers.iter().position(Answer::is_ok).map(|index| Some(values[index].clone()));
            let told = answers.iter().find_map(|answer| answer.value().map(|value| value.map(str::to_owned)));
            let read = match t.has(Verb::Read) {
                true => t.call(CLIENTS, Op::read(&res))?.value().map(|value| value.map(str::to_owned)),
                false => None,
            };
            known = read.or(done).or(told).unwrap_or(known);
        }
    }
    Ok(())
}

fn highest(t: &Trial<'_>) -> Result<(), Ended> {
    const CLIENTS: u32 = 8;
    const LIMIT: Duration = Duration::from_secs(10);
    let mut random = t.random(0);
    for _ in t.races(20) {
        let res = t.resource();
        let best = random.below(u64::from(CLIENTS)) as u32;
        let token = |client: u32| 10 + u64::from((client + CLIENTS - 1 - best) % CLIENTS);
        let everybody = || (0..CLIENTS).map(|client| (client, t.write_op(client, &res, token(client)))).collect();
        insist(t, best, LIMIT, everybody)?;
        // The zombies keep trying.
        let zombies = (0..CLIENTS).filter(|client| *client != best);
        t.race(zombies.map(|client| (client, t.write_op(client, &res, token(client)))).collect())?;
        if t.has(Verb::Read) {
            t.call(best, Op::read(&res))?;
        }
    }
    Ok(())
}

/// All clients retry until the best one has succeeded or the time is over.
fn insist(t: &Trial<'_>, best: u32, limit: Duration, everybody: impl Fn() -> Vec<(u32, Op)>) -> Result<(), Ended> {
    const TRIES: u32 = 20;
    let began = Instant::now();
    let mut lost = 0;
    for tried in 1..=TRIES {
        let answers = t.race(everybody())?;
        let answer = &answers[best as usize];
        // Under `gt` a write whose answer was lost may have used the token up.
        if answer.is_ok() || (lost > 0 && answer.is_stale()) {
            return Ok(());
        }
        lost += u32::from(answer.is_unknown());
        if tried == TRIES || began.elapsed() > limit {
            let (id, said) = (t.last(best), crate::words::answer(answer));
            let tries = if tried == 1 { "once".to_owned() } else { format!("{tried} times") };
            let sentence = format!(
                "client {best} has the highest token of all and tried {tries}; its latest write (#{id}) was {said}."
            );
            // Lost answers and a stalled machine take time too, and prove nothing about the resource.
            return Err(match lost {
                0 if tried == TRIES => t.fail(&[id], sentence),
                0 => Ended::Unknown(format!("{sentence} After {limit:?} there was no time for {TRIES} tries")),
                _ => Ended::Unknown(format!("{sentence} {lost} of its answers were lost")),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CASES, insist};
    use crate::answer::Answer;
    use crate::cases::{Ended, Progress, Trial};
    use crate::manifest::Manifest;
    use crate::run::Options;
    use crate::subject::{Broken, Hook, Request, Subject};

    /// A resource that refuses every request.
    #[derive(Default)]
    struct Busy {
        manifest: Manifest,
    }

    impl Subject for Busy {
        fn describe(&self) -> String {
            "busy".to_owned()
        }

        fn manifest(&self) -> &Manifest {
            &self.manifest
        }

        fn call(&self, _: &Request<'_>) -> Result<Answer, Broken> {
            Ok(Answer::error("busy"))
        }

        fn has(&self, _: Hook) -> bool {
            false
        }

        fn hook(&self, _: Hook) -> Result<(), Broken> {
            Ok(())
        }
    }

    #[test]
    fn whoever_had_no_time_to_try_often_is_no_evidence() {
        let busy = Busy::default();
        let case = CASES.iter().find(|case| case.id == "C10").unwrap();
        let ended = |limit| {
            let t = Trial::new(&busy, case, &Options::default(), "run", &Progress::default());
            insist(&t, 0, limit, || vec![(0, t.write_op(0, "r", 17))])
        };
        let Err(Ended::Unknown(why)) = ended(Duration::ZERO) else { panic!("one try is enough") };
        assert!(why.contains("tried once") && why.contains("no time for 20 tries"), "{why}");
        let Err(Ended::Failed(failure)) = ended(Duration::MAX) else { panic!("twenty tries are not enough") };
        assert!(failure.sentence.contains("tried 20 times"), "{}", failure.sentence);
    }
}
