//! Checks from the writes of a run whether the resource is described correctly. If every write fails, or none is ever
//! stale, an error in the map or the adapter is more likely than such a resource.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::answer::Answer;
use crate::op::{Op, Write};
use crate::report::text::{cut, one_line};
use crate::words;

/// How many characters of a request are shown.
const SHOWN: usize = 120;

/// The fences of at most this many resources are remembered, until a write was refused as stale.
const FENCES: usize = 1000;

/// At most this many different errors are counted; codes that contain a token or a name never end.
const ERRORS: usize = 100;

/// A larger value may cause an error because of its size.
const ORDINARY: usize = 4096;

/// All writes so far that carried a number as token.
#[derive(Default)]
pub(super) struct Writes {
    accepted: AtomicBool,
    stale: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The first answered write, if it was not accepted: the request, and the answer in words.
    first: Option<(String, String)>,
    /// The highest accepted token, by resource.
    fences: BTreeMap<String, u64>,
    /// How often each error was answered to a token below that.
    errors: BTreeMap<String, u64>,
}

impl Writes {
    /// Records an answered operation. `sent` describes what was sent; `error` names an error.
    pub(super) fn heard(
        &self,
        op: &Op,
        answer: &Answer,
        sent: impl FnOnce() -> String,
        error: impl FnOnce() -> String,
    ) {
        let Op::Write(Write { res, token, value, .. }) = op else { return };
        let Some(token) = token.number() else { return };
        if self.accepted.load(Ordering::Relaxed) && self.stale.load(Ordering::Relaxed) {
            return;
        }
        let mut seen = self.seen();
        match answer {
            Answer::Ok { .. } => {
                self.accepted.store(true, Ordering::Relaxed);
                if seen.fences.len() < FENCES || seen.fences.contains_key(res) {
                    let fence = seen.fences.entry(res.clone()).or_default();
                    *fence = token.max(*fence);
                }
            }
            Answer::Stale { .. } => {
                self.stale.store(true, Ordering::Relaxed);
                seen.fences.clear();
            }
            Answer::Error { definite: true, .. } => {
                let behind = seen.fences.get(res).is_some_and(|fence| token < *fence);
                if behind && value.len() <= ORDINARY {
                    let error = cut(&one_line(&error()), SHOWN);
                    if seen.errors.len() < ERRORS || seen.errors.contains_key(&error) {
                        *seen.errors.entry(error).or_default() += 1;
                    }
                }
            }
            _ => {}
        }
        // Missing answers are reported elsewhere.
        if seen.first.is_none() && !answer.is_unknown() && !answer.is_ok() {
            seen.first = Some((cut(&one_line(&sent()), SHOWN), words::answer(answer)));
        }
    }

    /// Warnings about the description; `described` is where the resource is described.
    pub(super) fn warnings(&self, described: &str) -> Option<String> {
        let seen = self.seen();
        if !self.accepted.load(Ordering::Relaxed) {
            let (sent, said) = seen.first.as_ref()?;
            return Some(format!(
                "no write was ever accepted: is the {described} right? The first was {sent}, and was {said}"
            ));
        }
        if self.stale.load(Ordering::Relaxed) {
            return None;
        }
        let (error, times) = seen.errors.iter().max_by_key(|(_, times)| **times)?;
        let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
        Some(format!(
            "no write was ever refused as stale; {error} was answered {times} to a token behind the fence, and the {described} \
             calls that an error: does it belong to `stale`?"
        ))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::Writes;
    use crate::answer::Answer;
    use crate::op::Op;
    use crate::token::Token;

    fn hear(writes: &Writes, token: impl Into<Token>, answer: Answer) {
        let error = || "status 409".to_owned();
        writes.heard(&Op::write("r", token, "h", "v"), &answer, || "PUT /r".to_owned(), error);
    }

    #[test]
    fn where_every_write_fails_the_first_answer_is_shown() {
        let writes = Writes::default();
        assert_eq!(writes.warnings("map"), None, "nothing was tried");
        hear(&writes, Token::text("x"), Answer::error("bad token"));
        hear(&writes, 1, Answer::unknown("no answer"));
        assert_eq!(writes.warnings("map"), None, "no token, and no answer");
        hear(&writes, 1, Answer::error("status 404: no such path"));
        hear(&writes, 2, Answer::error("status 405"));
        assert_eq!(
            writes.warnings("map").as_deref(),
            Some(
                "no write was ever accepted: is the map right? The first was PUT /r, and was answered with an error \
                 (status 404: no such path)"
            )
        );
        hear(&writes, 3, Answer::ok());
        assert_eq!(writes.warnings("map"), None, "one was accepted");
    }

    #[test]
    fn an_error_in_the_place_of_stale_is_named() {
        let writes = Writes::default();
        hear(&writes, 5, Answer::ok());
        hear(&writes, 9, Answer::error("busy"));
        assert_eq!(writes.warnings("map"), None, "its token is not behind the fence");
        let large = Op::write("r", 4, "h", &"x".repeat(5 << 20));
        writes.heard(&large, &Answer::error("too large"), String::new, || "status 413".to_owned());
        assert_eq!(writes.warnings("map"), None, "it may be too large");
        hear(&writes, 4, Answer::error("old"));
        hear(&writes, 3, Answer::error("old"));
        assert_eq!(
            writes.warnings("map").as_deref(),
            Some(
                "no write was ever refused as stale; status 409 was answered 2 times to a token behind the fence, and the map \
                 calls that an error: does it belong to `stale`?"
            )
        );
        hear(&writes, 2, Answer::Stale { high: None });
        assert_eq!(writes.warnings("map"), None, "one was refused as stale");

        let writes = Writes::default();
        hear(&writes, 5, Answer::ok());
        let long = || format!("old\n  at line 1\n{}", "x".repeat(1000));
        writes.heard(&Op::write("r", 4, "h", "v"), &Answer::error("old"), String::new, long);
        let said = writes.warnings("map").unwrap();
        assert!(said.len() < 400 && !said.contains('\n'), "{said}");
    }
}
