//! Group A: which tokens are admitted.

use super::{Case, Ended, Need, Trial};
use crate::answer::Answer;
use crate::evidence::Minimum;
use crate::op::{Op, Verb};
use crate::verdict::Level;

pub(super) const CASES: &[Case] = &[
    Case {
        id: "A01",
        title: "the first write is accepted",
        rule: "A resource that has no fence yet admits any token.",
        why: "A service that refuses its first writer cannot be used, and one that refuses everybody looks safe.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Accepted(3)],
        run: |t| {
            for token in [7, 1, t.manifest().token_max.min(1_000_000)] {
                let res = t.resource();
                t.accepted(0, t.write_op(0, &res, token))?;
                t.peek(0, &res)?;
            }
            Ok(())
        },
    },
    Case {
        id: "A02",
        title: "a higher token is accepted",
        rule: "A token above the fence is admitted and becomes the fence.",
        why: "This is the take-over: the next holder of the lock must be able to work.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Accepted(2), Minimum::Refused(1)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 7))?;
            t.accepted(1, t.write_op(1, &res, 8))?;
            t.peek(1, &res)?;
            t.refused(0, t.write_op(0, &res, 7)).map(drop)
        },
    },
    Case {
        id: "A03",
        title: "a stale token is refused",
        rule: "A token below the fence is refused.",
        why: "A worker that was paused past its lease wakes up and writes; nothing but this stops it.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Refused(4)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 100))?;
            for token in [1, 10, 50, 98] {
                t.refused(1, t.write_op(1, &res, token))?;
            }
            t.peek(0, &res).map(drop)
        },
    },
    Case {
        id: "A04",
        title: "a token that is stale by one is refused",
        rule: "The token just below the fence is refused like any other.",
        why: "In practice it is the predecessor who comes late, and his token is one less: off by one is the usual mistake.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Refused(3)],
        run: |t| {
            for fence in [2, 34, 4_096] {
                let res = t.resource();
                t.accepted(0, t.write_op(0, &res, fence))?;
                t.refused(1, t.write_op(1, &res, fence - 1))?;
                t.peek(0, &res)?;
            }
            Ok(())
        },
    },
    Case {
        id: "A05",
        title: "a refusal changes nothing",
        rule: "After a refusal the value and the fence are what they were.",
        why: "A service may write first and look afterwards, or roll back only a part.",
        level: Level::L1,
        needs: &[Need::Verb(Verb::Read)],
        minima: &[Minimum::Refused(2), Minimum::Read(3)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 9))?;
            t.accepted(0, Op::read(&res))?;
            for token in [5, 8] {
                t.refused(1, t.write_op(1, &res, token))?;
                t.accepted(1, Op::read(&res))?;
            }
            t.accepted(0, t.write_op(0, &res, 10)).map(drop)
        },
    },
    Case {
        id: "A06",
        title: "gaps between tokens do not matter",
        rule: "Any higher token is admitted, not only the next one.",
        why: "Locks that nobody used, or that guarded something else, leave gaps. A service that waits for the next number waits for ever.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Accepted(2), Minimum::Refused(1)],
        run: |t| {
            let res = t.resource();
            let mut before = None;
            let most = t.manifest().token_max;
            for token in [1, most.min(1_000), most.min(1_000_000), most.min(5_000_000_000)] {
                if before == Some(token) {
                    continue;
                }
                t.accepted(0, t.write_op(0, &res, token))?;
                if let Some(before) = before.replace(token) {
                    t.refused(1, t.write_op(1, &res, before))?;
                }
            }
            Ok(())
        },
    },
    Case {
        id: "A07",
        title: "tokens are numbers, not text",
        rule: "10 is above 9, and 100 above 99.",
        why: "Kept as text, in a header, a file name or a text column, \"10\" sorts before \"9\": at the tenth take-over everything breaks.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Accepted(6), Minimum::Refused(4)],
        run: |t| {
            for (low, high) in [(9, 10), (99, 100), (2, 10), (999, 1_000)] {
                let res = t.resource();
                t.accepted(0, t.write_op(0, &res, low))?;
                t.accepted(1, t.write_op(1, &res, high))?;
                t.refused(0, t.write_op(0, &res, low))?;
            }
            Ok(())
        },
    },
    Case {
        id: "A08",
        title: "tokens around 2^53 stay apart",
        rule: "Neighbours around 2^53 are told apart.",
        why: "JavaScript, Lua in Redis, and many JSON parsers keep numbers as floating point, and round these to one.",
        level: Level::L1,
        needs: &[],
        // A resource whose largest token is 2^53-1 accepts one token, and returns an error for the others.
        minima: &[Minimum::Accepted(1)],
        run: |t| around(t, &[1 << 53]),
    },
    Case {
        id: "A09",
        title: "tokens around 2^31, 2^32, 2^63 and at 2^64-1",
        rule: "Large tokens are ordered like small ones, or are a clean error above the largest that is declared.",
        why: "A signed or 32-bit column wraps around: the highest token becomes the lowest, and the fence is gone.",
        level: Level::L1,
        needs: &[],
        // A resource whose largest token is 2^31-1 accepts that one, and two small ones at each of the others.
        minima: &[Minimum::Accepted(7)],
        run: |t| around(t, &[1 << 31, 1 << 32, 1 << 63, u64::MAX - 1]),
    },
    Case {
        id: "A10",
        title: "zero is the lowest token, or none",
        rule: "Token 0 is a clean error, or below every other.",
        why: "Zero is what an unset variable sends; a service that takes it for \"no check\" is open to everybody.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Accepted(2)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 1))?;
            t.not_done(1, t.write_op(1, &res, 0))?;
            t.peek(0, &res)?;
            let fresh = t.resource();
            t.call(0, t.write_op(0, &fresh, 0))?;
            t.accepted(1, t.write_op(1, &fresh, 1))?;
            t.not_done(0, t.write_op(0, &fresh, 0))?;
            t.peek(0, &fresh).map(drop)
        },
    },
    Case {
        id: "A11",
        title: "the reported fence is the fence",
        rule: "Where a fence is reported, it is the highest token admitted so far, and refusals report it too.",
        why: "Clients act on it: too low, and a stale one believes that it is current; too high, and a good one gives up.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Accepted(3), Minimum::Refused(2)],
        run: |t| {
            let res = t.resource();
            let mut reported = Vec::new();
            for (token, stale) in [(5, None), (9, Some(5)), (40, Some(39))] {
                reported.push(t.accepted(0, t.write_op(0, &res, token))?);
                if let Some(stale) = stale {
                    reported.push(t.refused(1, t.write_op(1, &res, stale))?);
                }
                reported.extend(t.peek(0, &res)?);
            }
            if reported.iter().all(|answer| answer.high().is_none()) {
                return Err(Ended::NotApplicable("it never reports its fence".to_owned()));
            }
            Ok(())
        },
    },
    Case {
        id: "A12",
        title: "a refused token does not lower the fence",
        rule: "After 10, both 5 and 7 are refused.",
        why: "A service that remembers the last token it saw instead of the highest lets the second stale write through.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Refused(4)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 10))?;
            for token in [5, 7, 6, 9] {
                t.refused(1, t.write_op(1, &res, token))?;
            }
            t.peek(0, &res).map(drop)
        },
    },
    Case {
        id: "A13",
        title: "200 rising tokens are all accepted",
        rule: "As long as tokens rise, nothing is refused.",
        why: "A fence that refuses now and then without a reason is switched off by the people on call.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Accepted(200)],
        run: |t| {
            let res = t.resource();
            let mut random = t.random(0);
            let mut token = 0;
            for _ in 0..200 {
                token += 1 + random.below(3);
                t.accepted(0, t.write_op(0, &res, token))?;
            }
            t.peek(0, &res).map(drop)
        },
    },
];

/// Around each of these numbers, rising tokens are accepted and lower ones refused. Tokens above the largest are a
/// definite error.
fn around(t: &Trial<'_>, middles: &[u64]) -> Result<(), Ended> {
    let mut tried = 0;
    for &middle in middles {
        let (low, high) = (middle - 1, middle + 1);
        if low > t.manifest().token_max {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 1))?;
            too_large(t, &res, middle)?;
            t.accepted(0, t.write_op(0, &res, 2))?;
            continue;
        }
        tried += 1;
        let res = t.resource();
        t.accepted(0, t.write_op(0, &res, low))?;
        for token in [middle, high] {
            if token > t.manifest().token_max {
                too_large(t, &res, token)?;
                continue;
            }
            t.accepted(1, t.write_op(1, &res, token))?;
            t.refused(0, t.write_op(0, &res, token - 1))?;
            t.refused(0, t.write_op(0, &res, 1))?;
        }
        t.peek(0, &res)?;
    }
    match tried {
        0 => Err(Ended::NotApplicable(format!("its largest token is {}", t.manifest().token_max))),
        _ => Ok(()),
    }
}

fn too_large(t: &Trial<'_>, res: &str, token: u64) -> Result<(), Ended> {
    let answer = t.not_done(1, t.write_op(1, res, token))?;
    if matches!(answer, Answer::Stale { .. }) {
        let id = t.last(1);
        let max = t.manifest().token_max;
        let sentence =
            format!("Token {token} (#{id}) is above the largest, {max}, and was refused as stale; it is an error.");
        return Err(t.fail(&[id], sentence));
    }
    Ok(())
}
