//! R11: restores a backup that is older than the latest writes.
//!
//! The resource goes back in time, which no order of operations explains. So nothing is recorded after the restore, and
//! the answers are judged here.

use std::time::{Duration, Instant};

use super::{Ended, Trial};
use crate::answer::Answer;
use crate::manifest::Reads;
use crate::op::{Op, Verb, Write};
use crate::subject::{BackedUp, Hook, Restored};
use crate::wait;
use crate::words;

/// The client that comes too late, and the client that reads.
const ZOMBIE: u32 = 20;
const READER: u32 = 21;

/// How long stale reads may take to show the newest value.
const CATCH_UP: Duration = Duration::from_secs(2);

/// A resource that has fence 5 in the backup, or was created after it, and has fence 9 when the backup is restored.
struct Story {
    res: String,
    /// All values it had, the latest last.
    had: Vec<Option<String>>,
    /// The value in the backup.
    kept: Option<String>,
    /// Whether the backup contains the resource.
    known: bool,
    /// Operations whose refusal proves the fence.
    refusals: Vec<u64>,
}

/// The findings after the restore.
#[derive(Default)]
struct Found {
    /// A request was answered with more than an error.
    serves: bool,
    /// A value is as it was when the backup was made.
    went_back: bool,
    /// A fence raised since the backup is lost: this write was refused before the restore and accepted after it.
    forgotten: Option<u64>,
    /// The newest value is there without its fence.
    torn: Option<Ended>,
}

pub(super) fn older_backup(t: &Trial<'_>) -> Result<(), Ended> {
    let mut stories = fence_at_5(t)?;
    if !t.subject().has(Hook::Backup) {
        return Err(Ended::NotApplicable(
            "nothing could be backed up: what the suite has started keeps nothing in CONFORM_DIR, or it runs elsewhere; give the \
             hooks `backup` and `restore`"
                .to_owned(),
        ));
    }
    let all_of_it = match t.back_up()? {
        BackedUp::ByItself => true,
        BackedUp::ByCopy => false,
        BackedUp::Cannot(why) => return Err(cannot(&why)),
    };
    for story in &stories {
        t.peek(READER, &story.res)?;
        t.refused(ZOMBIE, t.write_op(ZOMBIE, &story.res, 4))?;
    }
    for _ in 0..2 {
        let (res, refusals) = (t.resource(), Vec::new());
        stories.push(Story { res, had: vec![None], kept: None, known: false, refusals });
    }
    for story in &mut stories {
        let newest = t.value();
        t.accepted(0, Op::write(&story.res, 9, &t.holder(0), &newest))?;
        t.refused(ZOMBIE, t.write_op(ZOMBIE, &story.res, 8))?;
        story.refusals.push(t.last(ZOMBIE));
        story.had.push(Some(newest));
    }
    match t.restore()? {
        Restored::Serves => {}
        Restored::Refuses(why) => {
            return Err(Ended::Info(format!(
                "it does not serve with a restored backup, so nobody gets in, and was given back what it had. If somebody has to \
                 do something after a restore, give the hooks `backup` and `restore`, and let `restore` do it: {why}"
            )));
        }
        Restored::Cannot(why) => return Err(cannot(&why)),
    }
    let mut found = Found::default();
    stories.iter().try_for_each(|story| story.after(t, &mut found))?;
    match found {
        Found { torn: Some(torn), went_back, .. } if all_of_it || went_back => Err(torn),
        // The copy contained the fences but not the values, so the mismatch comes from the copy.
        Found { torn: Some(_), .. } => Err(Ended::NotApplicable(
            "after the restore its fences were those of the backup and its values were not: its values do not lie in CONFORM_DIR; \
             give the hooks `backup` and `restore`"
                .to_owned(),
        )),
        Found { serves: false, .. } => Err(Ended::Info(
            "after a restore it answers everything with an error, so nobody gets in. If somebody has to do something then, give \
             the hooks `backup` and `restore`, and let `restore` do it"
                .to_owned(),
        )),
        Found { forgotten: Some(refusal), .. } => Err(Ended::Info(format!(
            "a restored backup has forgotten the fences raised since: token 8, refused before (#{refusal}), was accepted. After a \
             restore raise every fence above all tokens handed out (claim each resource with a higher one, or let the lock \
             service go on above them) before writers return"
        ))),
        Found { went_back: false, .. } if !t.has(Verb::Read) => Err(Ended::NotApplicable(
            "it cannot be read, so nobody sees whether anything was put back".to_owned(),
        )),
        Found { went_back: false, .. } => Err(Ended::NotApplicable(
            "after the restore everything was as before it: its data are not in CONFORM_DIR, or `restore` puts nothing back; give \
             the hooks `backup` and `restore`"
                .to_owned(),
        )),
        Found { .. } => Ok(()),
    }
}

fn cannot(why: &str) -> Ended {
    Ended::NotApplicable(format!("the suite cannot copy its data; give the hooks `backup` and `restore`: {why}"))
}

/// Resources with fence 5, one for each way to raise it, where token 4 was refused.
fn fence_at_5(t: &Trial<'_>) -> Result<Vec<Story>, Ended> {
    let holder = t.holder(0);
    let mut stories = Vec::new();
    for verb in [Verb::Write, Verb::Claim, Verb::Cas, Verb::Delete, Verb::Batch] {
        if !t.has(verb) {
            continue;
        }
        let (res, before, after) = (t.resource(), t.value(), t.value());
        t.accepted(0, Op::write(&res, 3, &holder, &before))?;
        let (op, kept) = match verb {
            Verb::Claim => (Op::claim(&res, 5, &holder), Some(before.clone())),
            Verb::Cas => (Op::cas(&res, 5, &holder, Some(&before), &after), Some(after)),
            Verb::Delete => (Op::delete(&res, 5, &holder), None),
            Verb::Batch => {
                let writes = [&res, &t.resource()].map(|res| Write::new(res, 5, &holder, &after)).to_vec();
                (Op::Batch { writes }, Some(after))
            }
            Verb::Write | Verb::Read | Verb::CheckedRead => (Op::write(&res, 5, &holder, &after), Some(after)),
        };
        t.accepted(0, op)?;
        t.refused(ZOMBIE, t.write_op(ZOMBIE, &res, 4))?;
        let (had, refusals) = (vec![None, Some(before), kept.clone()], vec![t.last(ZOMBIE)]);
        stories.push(Story { res, had, kept, known: true, refusals });
    }
    Ok(stories)
}

impl Story {
    /// Checks what is left of the resource after the restore.
    fn after(&self, t: &Trial<'_>, found: &mut Found) -> Result<(), Ended> {
        let newest = self.had.last().cloned().flatten();
        let stale_ok = t.manifest().reads == Reads::StaleOk;
        let mut value = self.read(t, found)?;
        // A read that is behind would look like a resource that went back.
        let deadline = Instant::now() + CATCH_UP;
        while stale_ok && !found.went_back && value.as_ref().is_some_and(|value| *value != newest) {
            if Instant::now() >= deadline {
                break;
            }
            wait::pause(Duration::from_millis(20));
            value = self.read(t, found)?;
        }
        if let Some(value) = &value {
            if *value != self.kept && *value != newest && !(stale_ok && self.had.contains(value)) {
                return Err(self.fail(
                    t,
                    format!(
                        "after the restore {} has {}: neither what the backup holds ({}) nor what was written last ({}).",
                        self.res,
                        words::value(value.as_deref()),
                        words::value(self.kept.as_deref()),
                        words::value(newest.as_deref()),
                    ),
                ));
            }
            found.went_back |= *value != newest;
        }
        let mut refused = Vec::new();
        if self.known && self.comes(t, 4, &mut refused, found)? {
            return Err(self.fail(
                t,
                format!(
                    "the write with token 4 to {} was refused before the backup was made, and accepted after it was restored: \
                     what was fenced off then is not fenced off any more.",
                    self.res
                ),
            ));
        }
        if self.comes(t, 8, &mut refused, found)? {
            found.forgotten = found.forgotten.or(self.refusals.last().copied());
            if value == Some(newest.clone()) && !stale_ok {
                found.torn.get_or_insert_with(|| {
                    let newest = words::value(newest.as_deref());
                    self.fail(
                        t,
                        format!(
                            "after the restore {} still had {newest}, the value of token 9, and the write with token 8 was \
                             accepted: the newer value without its fence.",
                            self.res
                        ),
                    )
                });
            }
            if self.comes(t, 7, &mut refused, found)? {
                return Err(self.fail(
                    t,
                    format!("after the restore {} accepted token 8, and token 7 after it: it is not fenced.", self.res),
                ));
            }
        }
        match self.read(t, found)? {
            Some(Some(value)) if refused.contains(&value) => {
                Err(self.fail(t, format!("after the restore {} has value {value}, whose write was refused.", self.res)))
            }
            _ => Ok(()),
        }
    }

    /// Whether a write with this token is accepted. The value of one that is not is added to `refused`.
    fn comes(&self, t: &Trial<'_>, token: u64, refused: &mut Vec<String>, found: &mut Found) -> Result<bool, Ended> {
        let value = t.value();
        let answer = answered(t, ZOMBIE, &Op::write(&self.res, token, &t.holder(ZOMBIE), &value))?;
        found.serves |= answer.is_ok() || answer.is_stale();
        if !answer.is_ok() {
            refused.push(value);
        }
        Ok(answer.is_ok())
    }

    /// The value, if the resource can be read and reports it.
    #[allow(clippy::option_option, reason = "not told, and none: two different absences")]
    fn read(&self, t: &Trial<'_>, found: &mut Found) -> Result<Option<Option<String>>, Ended> {
        if !t.has(Verb::Read) {
            return Ok(None);
        }
        let answer = answered(t, READER, &Op::read(&self.res))?;
        found.serves |= answer.is_ok();
        Ok(answer.value().map(|value| value.map(str::to_owned)))
    }

    fn fail(&self, t: &Trial<'_>, sentence: String) -> Ended {
        t.fail(&self.refusals, sentence)
    }
}

/// Sends a request after the restore. An unknown outcome ends the case.
fn answered(t: &Trial<'_>, client: u32, op: &Op) -> Result<Answer, Ended> {
    let answer = t.ask(client, op)?;
    match answer.is_unknown() {
        true => {
            Err(Ended::Unknown(format!("after the restore {} was {}", words::operation(op), words::answer(&answer))))
        }
        false => Ok(answer),
    }
}
