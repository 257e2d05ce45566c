//! Group F: what reads may see, and what they may do to the fence.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Case, Need};
use crate::evidence::{Evidence, Minimum};
use crate::op::{Op, Verb};
use crate::verdict::Level;

pub(super) const CASES: &[Case] = &[
    Case {
        id: "F01",
        title: "a checked read with a stale token is refused",
        rule: "A read under a token below the fence is refused.",
        why: "A stale holder who is not told goes on and decides things, outside this resource, on what he reads.",
        level: Level::L1,
        needs: &[Need::Verb(Verb::CheckedRead)],
        minima: &[Minimum::Refused(2)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 9))?;
            t.refused(1, Op::checked_read(&res, 5))?;
            t.refused(1, Op::checked_read(&res, 8)).map(drop)
        },
    },
    Case {
        id: "F02",
        title: "a checked read with the current token sees the value",
        rule: "A read under the token at the fence is answered with what is there.",
        why: "A check that refuses the rightful holder, or answers from somewhere else, is of no use to him.",
        level: Level::L1,
        needs: &[Need::Verb(Verb::CheckedRead)],
        minima: &[Minimum::Read(3)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, Op::checked_read(&res, 3))?;
            for token in [5, 9] {
                t.accepted(0, t.write_op(0, &res, token))?;
                t.accepted(0, Op::checked_read(&res, token))?;
            }
            Ok(())
        },
    },
    Case {
        id: "F03",
        title: "a claim raises the fence",
        rule: "After a claim, every lower token is refused, though nothing was written.",
        why: "A new holder reads, decides, and writes. Without the claim the old one can write between his read and his write.",
        level: Level::L1,
        needs: &[Need::Verb(Verb::Claim)],
        minima: &[Minimum::Accepted(2), Minimum::Refused(2)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 5))?;
            t.accepted(1, Op::claim(&res, 9, &t.holder(1)))?;
            t.refused(0, t.write_op(0, &res, 5))?;
            t.refused(0, t.write_op(0, &res, 8))?;
            t.peek(0, &res)?;
            t.refused(0, Op::claim(&res, 8, &t.holder(0)))?;
            t.accepted(1, t.write_op(1, &res, 9)).map(drop)
        },
    },
    Case {
        id: "F04",
        title: "a checked read does not raise the fence",
        rule: "A read under a high token leaves lower ones as they were.",
        why: "Reads that write make a monitoring job with a made-up token lock everybody out.",
        level: Level::L1,
        needs: &[Need::Verb(Verb::CheckedRead)],
        minima: &[Minimum::Accepted(2), Minimum::Read(1)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 5))?;
            t.accepted(1, Op::checked_read(&res, 99))?;
            t.accepted(0, t.write_op(0, &res, 6)).map(drop)
        },
    },
    Case {
        id: "F05",
        title: "no older read after an answer",
        rule: "A read that begins after a write was answered sees that write, or a newer one.",
        why: "A replica or cache that is behind shows the new holder what was there before; he overwrites what he did not see.",
        level: Level::L2,
        needs: &[Need::Verb(Verb::Read), Need::FreshReads],
        minima: &[Minimum::Accepted(50), Minimum::Read(100)],
        run: |t| {
            let res = t.resource();
            for token in 1..=t.scaled(100).max(50) {
                t.accepted(0, t.write_op(0, &res, token))?;
                t.accepted(1, Op::read(&res))?;
                t.accepted(2, Op::read(&res))?;
            }
            Ok(())
        },
    },
    Case {
        id: "F06",
        title: "a refused value is never visible",
        rule: "No read ever sees the value of a write that was refused, not even for a moment.",
        why: "A service that writes first and takes it back shows readers a state that never was.",
        level: Level::L2,
        needs: &[Need::Verb(Verb::Read)],
        minima: &[Minimum::Refused(50), Minimum::Read(50), Minimum::Overlapping(5)],
        run: |t| {
            // A fast resource may answer so soon that nothing overlaps; then it is tried again.
            for _ in 0..20 {
                let res = t.resource();
                t.accepted(0, t.write_op(0, &res, 1_000))?;
                let (rounds, done, ready) = (t.scaled(100).max(50), AtomicBool::new(false), Barrier::new(3));
                t.parallel(3, |client| {
                    ready.wait();
                    if client == 0 {
                        let write = |round| t.refused(0, t.write_op(0, &res, 1 + round % 999)).map(drop);
                        let refused = (0..rounds).try_for_each(write);
                        done.store(true, Ordering::Release);
                        return refused;
                    }
                    let mut reads = 0;
                    while reads < rounds / 2 || (!done.load(Ordering::Acquire) && reads < rounds * 2) {
                        t.accepted(client, Op::read(&res))?;
                        reads += 1;
                    }
                    Ok(())
                })?;
                if Evidence::of(&t.history()).overlapping >= 5 {
                    break;
                }
            }
            Ok(())
        },
    },
];
