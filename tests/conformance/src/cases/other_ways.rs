//! B05: requests that reach or change a resource by another way than its verbs.
//!
//! Such a request may be for another resource, so it is not recorded. The case checks afterwards that it has not done
//! what it must not do.

use super::{Ended, Trial};
use crate::answer::Answer;
use crate::manifest::Reads;
use crate::op::Op;
use crate::subject::Around;
use crate::token::Token;

/// The fence of a resource before the request.
const FENCE: u64 = 9;

/// A token that must be refused, whatever happened since.
const BELOW: u64 = FENCE - 1;

pub(super) fn around(t: &Trial<'_>) -> Result<(), Ended> {
    let ways = t.subject().bypasses();
    if ways.is_empty() {
        return Err(Ended::NotApplicable("it is reached in one way only".to_owned()));
    }
    let (mut spellings, mut requests, mut answered, mut unseen) = (0, 0, false, Vec::new());
    for (way, around) in ways.iter().enumerate() {
        let Some(said) = unchanged(t, way, around, &5.into())? else { continue };
        answered |= !said.is_unknown();
        unchanged(t, way, around, &Token::Absent)?;
        let said = newer(t, way, around)?;
        match around {
            Around::Spelling(_) => spellings += 1,
            Around::Request(name) => {
                requests += 1;
                unseen.extend((!said.is_ok()).then_some(name.as_str()));
            }
        }
    }
    if spellings + requests == 0 {
        return Err(Ended::NotApplicable("none of the other ways can be written down for it".to_owned()));
    }
    if !answered {
        return Err(Ended::Unknown(format!("{} other ways were tried, and none was answered", spellings + requests)));
    }
    let mut tried = format!("tried: {spellings} other spellings of a write, {requests} other requests");
    if requests == 0 {
        tried.push_str("; copy, rename, expiry and the like were not tried");
    }
    if !unseen.is_empty() {
        tried.push_str("; not accepted under a newer token either, so nobody saw what they do: ");
        tried.push_str(&unseen.join(", "));
    }
    t.remark(tried);
    Ok(())
}

/// A request with a stale token, or with none, must change nothing, and must leave the fence as it is.
fn unchanged(t: &Trial<'_>, way: usize, around: &Around, token: &Token) -> Result<Option<Answer>, Ended> {
    let res = t.resource();
    t.accepted(0, t.write_op(0, &res, FENCE))?;
    let before = t.accepted(0, Op::read(&res))?;
    let sent = t.value();
    let said = t.bypass(way, 1, &Op::write(&res, token.clone(), &t.holder(1), &sent))?;
    if said == Answer::Unsupported {
        return Ok(None);
    }
    let after = t.accepted(0, Op::read(&res))?;
    // A stale read may also catch up in between.
    let changed = match t.manifest().reads {
        Reads::Linearizable => before.value() != after.value(),
        Reads::StaleOk => after.value() == Some(Some(&sent)),
    };
    if changed {
        let (id, name, with) = (t.last(0), around.name(), with(token));
        return Err(t.fail(
            &[id],
            format!("By another way ({name}), a write with {with} changed {res}, whose fence was {FENCE}: read #{id} sees it."),
        ));
    }
    let below = t.call(2, t.write_op(2, &res, BELOW))?;
    still_fenced(t, t.last(2), &below, around, token)?;
    Ok(Some(said))
}

/// The request of a newer holder may do anything but lower the fence.
fn newer(t: &Trial<'_>, way: usize, around: &Around) -> Result<Answer, Ended> {
    let token = (FENCE + 1).into();
    let res = t.resource();
    t.accepted(0, t.write_op(0, &res, FENCE))?;
    let said = t.bypass(way, 1, &Op::write(&res, FENCE + 1, &t.holder(1), &t.value()))?;
    // Not recorded either: the history does not contain the request that raised the fence.
    let below = t.ask(2, &t.write_op(2, &res, BELOW))?;
    still_fenced(t, t.last(0), &below, around, &token)?;
    Ok(said)
}

/// Checks the answer to a token just below the fence, after a request with `token`: was the fence dropped or lowered?
fn still_fenced(t: &Trial<'_>, id: u64, below: &Answer, around: &Around, token: &Token) -> Result<(), Ended> {
    let (said, name) = (crate::words::answer(below), around.name());
    match below {
        Answer::Stale { .. } => Ok(()),
        Answer::Unknown { .. } => Err(Ended::Unknown(format!("a write with token {BELOW}, after {name}, was {said}"))),
        _ => Err(t.fail(
            &[id],
            format!(
                "The fence was {FENCE}. After a request by another way ({name}) with {}, a write with token {BELOW} was {said}: that \
                 request took the fence away, or lowered it.",
                with(token)
            ),
        )),
    }
}

/// `token 5`, `no token`
fn with(token: &Token) -> String {
    token.number().map_or_else(|| "no token".to_owned(), |number| format!("token {number}"))
}
