//! Group E: what a token equal to the fence may do.

use super::{Case, Ended, Need, Trial};
use crate::evidence::Minimum;
use crate::manifest::Policy;
use crate::op::{Op, Verb, Write};
use crate::verdict::Level;

pub(super) const CASES: &[Case] = &[
    Case {
        id: "E01",
        title: "the holder may write again",
        rule: "Under ge, the token at the fence is admitted as often as its holder likes.",
        why: "One lock covers many writes. A service that takes each token once refuses its rightful holder.",
        level: Level::L1,
        needs: &[Need::Policy(Policy::Ge)],
        minima: &[Minimum::Accepted(5)],
        run: |t| {
            let res = t.resource();
            for token in [5, 5, 5, 9, 9] {
                t.accepted(0, t.write_op(0, &res, token))?;
                t.peek(0, &res)?;
            }
            Ok(())
        },
    },
    Case {
        id: "E02",
        title: "a used token is refused",
        rule: "Under gt, a token writes once.",
        why: "Who relies on each token writing once, to make retries harmless, gets the second write otherwise.",
        level: Level::L1,
        needs: &[Need::Policy(Policy::Gt)],
        minima: &[Minimum::Accepted(2), Minimum::Refused(2)],
        run: |t| {
            let res = t.resource();
            for token in [5, 9] {
                t.accepted(0, t.write_op(0, &res, token))?;
                t.refused(0, t.write_op(0, &res, token))?;
                t.peek(0, &res)?;
            }
            Ok(())
        },
    },
    Case {
        id: "E03",
        title: "the same policy on every verb",
        rule: "A used token is treated alike by write, cas, delete and batch.",
        why: "The comparison is often written once for each verb, and one of them says > where the others say >=.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Accepted(1)],
        run: |t| {
            let mut tried = 0;
            for verb in [Verb::Cas, Verb::Delete, Verb::Batch] {
                tried += u32::from(t.has(verb));
                if t.has(verb) {
                    used_token(t, verb)?;
                }
            }
            match tried {
                0 => Err(Ended::NotApplicable("write is its only verb that changes something".to_owned())),
                _ => Ok(()),
            }
        },
    },
    Case {
        id: "E04",
        title: "a claim leaves its token one write",
        rule: "Under gt, a token that only claimed may still write once.",
        why: "A new holder claims first and then writes. If the claim uses the token up, nobody can work.",
        level: Level::L1,
        needs: &[Need::Policy(Policy::Gt), Need::Verb(Verb::Claim)],
        minima: &[Minimum::Accepted(2), Minimum::Refused(1)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, Op::claim(&res, 5, &t.holder(0)))?;
            t.accepted(0, t.write_op(0, &res, 5))?;
            t.refused(0, t.write_op(0, &res, 5)).map(drop)
        },
    },
    Case {
        id: "E05",
        title: "another holder with the same token is refused",
        rule: "The token at the fence belongs to the holder who brought it first.",
        why: "A lock service that fell back hands out a number twice; only the holder's name tells the two apart.",
        level: Level::L1,
        needs: &[Need::Holders],
        minima: &[Minimum::Accepted(1), Minimum::Refused(2)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 5))?;
            t.refused(1, t.write_op(1, &res, 5))?;
            t.peek(0, &res)?;
            if t.has(Verb::Claim) {
                t.refused(1, Op::claim(&res, 5, &t.holder(1)))?;
            }
            if t.has(Verb::Delete) {
                t.refused(1, Op::delete(&res, 5, &t.holder(1)))?;
                t.peek(0, &res)?;
            }
            if t.manifest().policy == Policy::Ge {
                t.accepted(0, t.write_op(0, &res, 5))?;
            }
            t.accepted(1, t.write_op(1, &res, 6))?;
            t.refused(0, t.write_op(0, &res, 5)).map(drop)
        },
    },
];

/// Uses a token for a write, and then again for this verb.
fn used_token(t: &Trial<'_>, verb: Verb) -> Result<(), Ended> {
    let (res, first, holder) = (t.resource(), t.value(), t.holder(0));
    t.accepted(0, Op::write(&res, 5, &holder, &first))?;
    let again = match verb {
        Verb::Cas => Op::cas(&res, 5, &holder, Some(&first), &t.value()),
        Verb::Delete => Op::delete(&res, 5, &holder),
        _ => Op::Batch { writes: vec![Write::new(&res, 5, &holder, &t.value())] },
    };
    match t.manifest().policy {
        Policy::Ge => t.accepted(0, again)?,
        Policy::Gt => t.refused(0, again)?,
    };
    t.peek(0, &res).map(drop)
}
