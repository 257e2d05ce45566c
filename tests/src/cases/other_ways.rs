//! B05: requests that reach a resource, or change it, by another way than its verbs.
//!
//! Such a request may be taken for one to another resource, so nothing is written down about it. What it must not do is looked
//! at afterwards.

use super::{Ended, Trial};
use crate::answer::Answer;
use crate::manifest::Reads;
use crate::op::Op;
use crate::subject::Around;

/// The fence that a resource has before.
const FENCE: u64 = 9;

/// A token that the fence must refuse, whatever happened since.
const BELOW: u64 = FENCE - 1;

pub(super) fn around(t: &Trial<'_>) -> Result<(), Ended> {
    let ways = t.subject().bypasses();
    if ways.is_empty() {
        return Err(Ended::NotApplicable("it is reached in one way only".to_owned()));
    }
    let (mut spellings, mut requests, mut answered) = (0, 0, false);
    for (way, around) in ways.iter().enumerate() {
        let Some(said) = stale(t, way, around)? else { continue };
        answered |= !said.is_unknown();
        current(t, way, around)?;
        match around {
            Around::Spelling(_) => spellings += 1,
            Around::Request(_) => requests += 1,
        }
    }
    if spellings + requests == 0 {
        return Err(Ended::NotApplicable("none of the other ways can be written down for it".to_owned()));
    }
    if !answered {
        return Err(Ended::Unknown(format!("{} other ways were tried, and none was answered", spellings + requests)));
    }
    let more = if requests == 0 { ": copy, rename, expiry and the like were not tried" } else { "" };
    t.remark(format!("tried: {spellings} other spellings of a write, {requests} other requests{more}"));
    Ok(())
}

/// A stale request changes nothing, and leaves the fence where it is.
fn stale(t: &Trial<'_>, way: usize, around: &Around) -> Result<Option<Answer>, Ended> {
    const TOKEN: u64 = 5;
    let res = t.resource();
    t.accepted(0, t.write_op(0, &res, FENCE))?;
    let before = t.accepted(0, Op::read(&res))?;
    let sent = t.value();
    let said = t.bypass(way, 1, &Op::write(&res, TOKEN, &t.holder(1), &sent))?;
    if said == Answer::Unsupported {
        return Ok(None);
    }
    let after = t.accepted(0, Op::read(&res))?;
    // A read that may be stale may also catch up.
    let changed = match t.manifest().reads {
        Reads::Linearizable => before.value() != after.value(),
        Reads::StaleOk => after.value() == Some(Some(&sent)),
    };
    if changed {
        let (id, name) = (t.last(0), around.name());
        return Err(t.fail(
            &[id],
            format!("By another way ({name}), a write with token {TOKEN} changed {res}, whose fence was {FENCE}: read #{id} sees it."),
        ));
    }
    let below = t.call(2, t.write_op(2, &res, BELOW))?;
    still_fenced(t, t.last(2), &below, around, TOKEN)?;
    Ok(Some(said))
}

/// The request of a newer holder may do what it likes, but for the fence: that stays, or rises.
fn current(t: &Trial<'_>, way: usize, around: &Around) -> Result<(), Ended> {
    const TOKEN: u64 = FENCE + 1;
    let res = t.resource();
    t.accepted(0, t.write_op(0, &res, FENCE))?;
    t.bypass(way, 1, &Op::write(&res, TOKEN, &t.holder(1), &t.value()))?;
    // Not written down either: to the checker nobody has raised the fence.
    let below = t.ask(2, &t.write_op(2, &res, BELOW))?;
    still_fenced(t, t.last(0), &below, around, TOKEN)
}

/// What was said to a token just below the fence, after a request with this one: was the fence dropped or lowered?
fn still_fenced(t: &Trial<'_>, id: u64, below: &Answer, around: &Around, token: u64) -> Result<(), Ended> {
    let (said, name) = (crate::words::answer(below), around.name());
    match below {
        Answer::Stale { .. } => Ok(()),
        Answer::Unknown { .. } => Err(Ended::Unknown(format!("a write with token {BELOW}, after {name}, was {said}"))),
        _ => Err(t.fail(
            &[id],
            format!(
                "After a request by another way ({name}) with token {token}, the fence was {FENCE} no more: a write with token \
                 {BELOW} was {said}."
            ),
        )),
    }
}
