//! Group B: ways around the fence.

use super::{Case, Ended, Need, Trial, other_ways};
use crate::answer::Answer;
use crate::evidence::Minimum;
use crate::op::{Op, Verb, Write};
use crate::token::Token;
use crate::verdict::Level;

/// More than many services accept; a value of this size must be accepted whole, or not at all.
const OVERSIZE: usize = 5 << 20;

pub(super) const CASES: &[Case] = &[
    Case {
        id: "B01",
        title: "no token, no write",
        rule: "Whatever changes something is refused without a token.",
        why: "Old clients and scripts send none. If that means \"unchecked\", they are the hole.",
        level: Level::L1,
        needs: &[Need::TextTokens],
        minima: &[Minimum::Accepted(1)],
        run: |t| {
            let fresh = t.resource();
            t.not_done(0, Op::write(&fresh, Token::Absent, &t.holder(0), &t.value()))?;
            t.peek(0, &fresh)?;
            t.accepted(0, t.write_op(0, &fresh, 1))?;
            for verb in changing(t) {
                let (res, first) = (t.resource(), t.value());
                t.accepted(0, Op::write(&res, 9, &t.holder(0), &first))?;
                t.not_done(1, change(t, verb, 1, &res, Token::Absent, &first))?;
                t.peek(0, &res)?;
            }
            Ok(())
        },
    },
    Case {
        id: "B02",
        title: "what is no token is refused",
        rule: "Empty, signed, decimal, hexadecimal, overlong or otherwise malformed tokens are an error, and change nothing.",
        why: "Lenient parsers read \"9e9\", \"0x10\" or \"12abc\" as some number, wrap an overflow around, or take it for none.",
        level: Level::L1,
        needs: &[Need::TextTokens],
        minima: &[Minimum::Accepted(2)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 9))?;
            for text in malformed() {
                t.not_done(1, Op::write(&res, Token::text(&text), &t.holder(1), &t.value()))?;
            }
            t.peek(0, &res)?;
            t.refused(1, t.write_op(1, &res, 8))?;
            t.accepted(0, t.write_op(0, &res, 10)).map(drop)
        },
    },
    Case {
        id: "B03",
        title: "two tokens that contradict each other are refused",
        rule: "A request that carries a stale and a current token is an error.",
        why: "A proxy checks the first header and the service reads the last.",
        level: Level::L1,
        needs: &[Need::TextTokens],
        minima: &[Minimum::Accepted(2)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 9))?;
            for (first, second) in [("5", "20"), ("20", "5")] {
                let both = Token::Both(first.to_owned(), second.to_owned());
                let answer = t.call(1, Op::write(&res, both, &t.holder(1), &t.value()))?;
                if answer == Answer::Unsupported {
                    return Err(Ended::NotApplicable("two tokens cannot be sent".to_owned()));
                }
                if answer.is_ok() {
                    let id = t.last(1);
                    let sentence =
                        format!("A write with two tokens, {first} and {second} (#{id}), was accepted at fence 9.");
                    return Err(t.fail(&[id], sentence));
                }
                t.peek(0, &res)?;
            }
            t.accepted(0, t.write_op(0, &res, 10)).map(drop)
        },
    },
    Case {
        id: "B04",
        title: "every verb that changes something is fenced",
        rule: "Write, claim, cas, delete and batch are refused with a stale token, and change nothing; with a newer one they raise \
               the fence.",
        why: "The main path is fenced; the verb that was added later is not.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Refused(1)],
        run: |t| {
            for verb in changing(t) {
                let (res, first) = (t.resource(), t.value());
                t.accepted(0, Op::write(&res, 9, &t.holder(0), &first))?;
                t.refused(1, change(t, verb, 1, &res, 5.into(), &first))?;
                t.peek(0, &res)?;
                t.refused(1, t.write_op(1, &res, 8))?;
                t.accepted(2, change(t, verb, 2, &res, 11.into(), &first))?;
                t.refused(1, t.write_op(1, &res, 10))?;
            }
            Ok(())
        },
    },
    Case {
        id: "B05",
        title: "no other way around the fence",
        rule: "Other spellings of a path, method overrides, and every other request that changes the resource are fenced too, \
               and leave the fence where it is.",
        why: "The check hangs on one spelling of a path, and a router or file system behind it knows several.",
        level: Level::L1,
        needs: &[Need::Verb(Verb::Read)],
        minima: &[Minimum::Read(1), Minimum::Refused(1)],
        run: other_ways::around,
    },
    Case {
        id: "B06",
        title: "resources do not share a fence",
        rule: "Names that differ are different resources, each with a fence and a value of its own.",
        why: "Prefixes, decoded slashes, folded case and Unicode forms make one resource of two; one fence for all locks everybody out.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Accepted(4)],
        run: |t| {
            for (one, other) in pairs(&t.resource()) {
                let answer = t.call(0, t.write_op(0, &one, 9))?;
                if !answer.is_ok() {
                    // The resource does not accept this name. It must accept the plain ones.
                    continue;
                }
                // It must not be refused as stale, which the checker verifies. A name that is not accepted is an error.
                let written = t.call(1, t.write_op(1, &other, 1))?;
                t.peek(0, &one)?;
                if !matches!(written, Answer::Error { definite: true, .. }) {
                    t.peek(0, &other)?;
                }
            }
            Ok(())
        },
    },
    Case {
        id: "B07",
        title: "delete keeps the fence",
        rule: "After a delete the fence is where the delete has put it, and stale tokens are refused by every verb; also if there \
               was nothing to delete.",
        why: "The token is a column of the row, or an attribute of the file, and goes with it.",
        level: Level::L1,
        needs: &[Need::Verb(Verb::Delete)],
        minima: &[Minimum::Accepted(2), Minimum::Refused(2)],
        run: |t| {
            let (res, first) = (t.resource(), t.value());
            t.accepted(0, Op::write(&res, 9, &t.holder(0), &first))?;
            t.accepted(0, Op::delete(&res, 10, &t.holder(0)))?;
            t.peek(0, &res)?;
            for verb in changing(t) {
                t.refused(1, change(t, verb, 1, &res, 5.into(), &first))?;
            }
            t.refused(1, t.write_op(1, &res, 9))?;
            t.peek(0, &res)?;
            // Deleting a resource that never existed may be an error. If it is not, the fence rises.
            let absent = t.resource();
            if t.call(0, Op::delete(&absent, 9, &t.holder(0)))?.is_ok() {
                t.refused(1, t.write_op(1, &absent, 5))?;
                t.accepted(0, t.write_op(0, &absent, 10))?;
            }
            t.peek(0, &absent).map(drop)
        },
    },
    Case {
        id: "B08",
        title: "an old token cannot create again what was deleted",
        rule: "What a newer holder deleted stays deleted for older ones.",
        why: "\"Create if absent\" has nothing to compare with, and an order that was cancelled comes back.",
        level: Level::L1,
        needs: &[Need::Verb(Verb::Delete)],
        minima: &[Minimum::Accepted(2), Minimum::Refused(1)],
        run: |t| {
            let res = t.resource();
            t.accepted(0, t.write_op(0, &res, 5))?;
            t.accepted(1, Op::delete(&res, 9, &t.holder(1)))?;
            t.refused(0, t.write_op(0, &res, 5))?;
            if t.has(Verb::Cas) {
                t.refused(0, Op::cas(&res, 5, &t.holder(0), None, &t.value()))?;
            }
            t.peek(0, &res)?;
            t.accepted(1, t.write_op(1, &res, 10)).map(drop)
        },
    },
    Case {
        id: "B09",
        title: "the current token is not adopted for an absent one",
        rule: "A request without a token is refused also when it comes from the holder of the fence.",
        why: "A service that fills in the current token for whoever sends none admits exactly the zombie.",
        level: Level::L1,
        needs: &[Need::TextTokens],
        minima: &[Minimum::Accepted(2)],
        run: |t| {
            let res = t.resource();
            for token in [5, 9] {
                t.accepted(0, t.write_op(0, &res, token))?;
                t.not_done(0, Op::write(&res, Token::Absent, &t.holder(0), &t.value()))?;
                t.not_done(0, Op::write(&res, Token::text(""), &t.holder(0), &t.value()))?;
                t.peek(0, &res)?;
            }
            Ok(())
        },
    },
    Case {
        id: "B10",
        title: "a large value is fenced, and never cut",
        rule: "A value of 5 MiB under a stale token is not accepted; under a current one it is accepted whole, or not at all. An empty \
               value leaves a fence, too.",
        why: "Large bodies often take another path: streamed, uploaded in parts, or cut at a limit. And what is empty may be taken \
              for what is not there.",
        level: Level::L1,
        needs: &[],
        minima: &[Minimum::Accepted(2)],
        run: |t| {
            let (res, large) = (t.resource(), |value: String| format!("{value}-{}", "x".repeat(OVERSIZE)));
            t.accepted(0, t.write_op(0, &res, 9))?;
            let stale = t.call(1, Op::write(&res, 5, &t.holder(1), &large(t.value())))?;
            if stale.is_ok() {
                let id = t.last(1);
                let sentence = format!("The write of 5 MiB with token 5 (#{id}) was accepted, and the fence was 9.");
                return Err(t.fail(&[id], sentence));
            }
            t.peek(0, &res)?;
            let written = t.call(0, Op::write(&res, 10, &t.holder(0), &large(t.value())))?;
            t.peek(0, &res)?;
            if written.is_ok() {
                // Overwriting a large value with a stale token, too.
                t.call(1, Op::write(&res, 6, &t.holder(1), &large(t.value())))?;
                t.peek(0, &res)?;
            }
            t.accepted(0, t.write_op(0, &res, 11))?;
            t.peek(0, &res)?;
            let empty = t.resource();
            t.accepted(0, t.write_op(0, &empty, 9))?;
            if t.call(0, Op::write(&empty, 10, &t.holder(0), ""))?.is_ok() {
                t.refused(1, t.write_op(1, &empty, 9))?;
            }
            Ok(())
        },
    },
];

/// The changing verbs that the resource has.
fn changing(t: &Trial<'_>) -> Vec<Verb> {
    let verbs = [Verb::Write, Verb::Claim, Verb::Cas, Verb::Delete, Verb::Batch];
    verbs.into_iter().filter(|verb| t.has(*verb)).collect()
}

/// An operation of this verb; `there` is the current value.
fn change(t: &Trial<'_>, verb: Verb, client: u32, res: &str, token: Token, there: &str) -> Op {
    let holder = t.holder(client);
    match verb {
        Verb::Claim => Op::claim(res, token, &holder),
        Verb::Cas => Op::cas(res, token, &holder, Some(there), &t.value()),
        Verb::Delete => Op::delete(res, token, &holder),
        Verb::Batch => Op::Batch { writes: vec![Write::new(res, token, &holder, &t.value())] },
        Verb::Write | Verb::Read | Verb::CheckedRead => Op::write(res, token, &holder, &t.value()),
    }
}

/// Texts that are not tokens. A lenient parser reads each as a token above the fence.
fn malformed() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        " ",
        " 12",
        "12 ",
        "1 2",
        "+12",
        "-1",
        "-12",
        "12.0",
        "12.5",
        "1e3",
        "0x1F",
        "1_000",
        "1,000",
        "12abc",
        "abc",
        "٣٤",
        "１２",
        "12;13",
        "12,13",
        "[12]",
        "\"12\"",
        "NaN",
        "Infinity",
        "null",
        "true",
        "18446744073709551616",
        "340282366920938463463374607431768211456",
    ]
    .map(str::to_owned)
    .into();
    texts.push("9".repeat(10_000));
    texts.push("12\0".to_owned());
    texts
}

/// Pairs of names that a careless service takes for one name.
fn pairs(base: &str) -> Vec<(String, String)> {
    let pair = |one: &str, other: &str| (format!("{base}{one}"), format!("{base}{other}"));
    vec![
        pair("1", "10"),
        pair("10b", "1b"),
        pair("x", "X"),
        pair("-a/b", "-a%2Fb"),
        pair("-a/c", "-a"),
        pair("-d.e", "-d"),
        pair("-\u{e9}", "-e\u{301}"),
        pair("-f g", "-f+g"),
        pair("-f%20h", "-f h"),
    ]
}
