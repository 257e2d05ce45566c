//! A value that is seen was written before, and not replaced in between.

use std::collections::HashMap;

use super::{Finding, View};
use crate::answer::Answer;
use crate::history::{Operation, Time};
use crate::op::{Op, Verb, Write};
use crate::words;

/// The operations that tried to write a value, by resource and value.
pub(super) type Attempts<'h> = HashMap<(&'h str, &'h str), Vec<&'h Operation>>;

/// The values that these operations tried to write.
pub(super) fn attempts<'h>(operations: &[&'h Operation]) -> Attempts<'h> {
    let mut attempts = Attempts::new();
    for operation in operations {
        let mut add =
            |resource: &'h str, value: &'h str| attempts.entry((resource, value)).or_default().push(operation);
        match &operation.op {
            Op::Write(Write { res, value, .. }) | Op::Cas { res, value, .. } => add(res, value),
            Op::Batch { writes } => writes.iter().for_each(|write| add(&write.res, &write.value)),
            Op::Read { .. } | Op::CheckedRead { .. } | Op::Claim { .. } | Op::Delete { .. } => {}
        }
    }
    attempts
}

pub(super) fn find(view: &View<'_>, unused: &Attempts<'_>, findings: &mut Vec<Finding>) {
    let attempts = attempts(&view.operations);
    let replaced = Replaced::new(view);
    let mut first_seen: HashMap<&str, &Operation> = HashMap::new();
    for operation in view.operations.iter().filter(|operation| view.placed(operation)) {
        if let Some(Some(value)) = saw(operation) {
            let first = first_seen.entry(value).or_insert(operation);
            if operation.latest() < first.latest() {
                *first = operation;
            }
        }
    }
    for reader in &view.operations {
        let finding = match saw(reader) {
            None => None,
            Some(None) => replaced.lost(view, reader),
            Some(Some(value)) => {
                let key = (view.resource, value);
                let tried = attempts.get(&key).into_iter().chain(unused.get(&key)).flatten();
                let (able, unable): (Vec<&Operation>, Vec<&Operation>) = tried
                    .copied()
                    .partition(|writer| view.may_write(writer) && super::understood(view.manifest, writer));
                match able.iter().any(|writer| writer.called <= reader.latest()) {
                    false => Some(from_nowhere(reader, value, &able, &unable)),
                    true => superseded(view, reader, value, &able, first_seen.get(value).copied(), &replaced),
                }
            }
        };
        findings.extend(finding);
    }
}

/// The value that an answer shows, if it shows one.
pub(super) fn saw(operation: &Operation) -> Option<Option<&str>> {
    match (&operation.op, &operation.answer) {
        (Op::Cas { expect, .. }, Answer::Ok { .. }) => Some(expect.as_deref()),
        (Op::Cas { .. }, Answer::Mismatch { current }) => current.as_ref().map(|current| current.as_deref()),
        (Op::Read { .. } | Op::CheckedRead { .. } | Op::Claim { .. }, Answer::Ok { value, .. }) => {
            value.as_ref().map(|value| value.as_deref())
        }
        _ => None,
    }
}

/// `read #7 returned v-3`
fn sight(reader: &Operation, value: Option<&str>) -> String {
    let (shown, value) = (words::short(reader), words::value(value));
    match (reader.op.verb(), reader.answer.is_ok()) {
        (Verb::Cas, true) => format!("{shown} was accepted because it found {value}"),
        _ => format!("{shown} returned {value}"),
    }
}

fn from_nowhere(reader: &Operation, value: &str, able: &[&Operation], unable: &[&Operation]) -> Finding {
    let seen = sight(reader, Some(value));
    if let Some(writer) = able.first() {
        let [at, later] = words::moments([reader.returned, writer.called]);
        let sentence = format!("{seen} at {at}, but {} was only called at {later}.", words::short(writer));
        return Finding::new(sentence, &[writer, reader]);
    }
    let Some(writer) = unable.first() else {
        let [at] = words::moments([reader.returned]);
        return Finding::new(format!("{seen} at {at}, but nobody ever wrote that."), &[reader]);
    };
    let [at, when] = words::moments([reader.returned, writer.returned]);
    let why = match writer.answer.is_not_done() {
        true => format!("{} had been {} at {when}", words::short(writer), writer.answer.word()),
        false => format!("{} has no token that may write", words::short(writer)),
    };
    let sentence = format!("{seen} at {at}, but {why}: what was refused must never be seen.");
    let sentence = if writer.returned > reader.returned { sentence.replace(" had been ", " was ") } else { sentence };
    let mut operations = unable.to_vec();
    operations.push(reader);
    Finding::new(sentence, &operations)
}

fn superseded(
    view: &View<'_>,
    reader: &Operation,
    value: &str,
    able: &[&Operation],
    first_seen: Option<&Operation>,
    replaced: &Replaced<'_>,
) -> Option<Finding> {
    if !view.placed(reader) {
        return None;
    }
    // If only one operation can have written the value, the first operation that saw it proves that it was written by
    // then.
    let writer = able.iter().max_by_key(|writer| writer.latest())?;
    let proof = match (able, first_seen) {
        ([writer], Some(seen)) if seen.latest() < writer.latest() => seen,
        _ => writer,
    };
    let other = replaced.by(reader.called).filter(|other| other.called > proof.latest())?;
    let [at, done, called, returned] = words::moments([reader.returned, proof.latest(), other.called, other.returned]);
    let before = match (proof.id == writer.id, writer.answer.is_ok()) {
        (true, true) => format!("{} was accepted at {done}", words::short(writer)),
        (true, false) => format!("{done}, by when {} had happened or never would", words::short(writer)),
        (false, _) => format!("{} at {done}", sight(proof, Some(value))),
    };
    let sentence = format!(
        "{} at {at}, but {} had replaced it: it was called at {called}, after {before}, and accepted at {returned}.{}",
        sight(reader, Some(value)),
        words::short(other),
        view.crash_between(other.latest(), reader.called)
    );
    let mut operations = able.to_vec();
    operations.extend([proof, other, reader]);
    operations.dedup_by_key(|operation| operation.id);
    Some(Finding::new(sentence, &operations))
}

/// Changes of the value that were certainly done.
struct Replaced<'h> {
    /// By end time: the change so far that was called last.
    changes: Vec<(Time, &'h Operation)>,
    /// The same without deletes.
    writes: Vec<(Time, &'h Operation)>,
    /// By call time: the latest possible end of any delete so far that may have been done.
    deletes: Vec<(Time, Time)>,
}

impl<'h> Replaced<'h> {
    fn new(view: &View<'h>) -> Replaced<'h> {
        let mut done: Vec<&Operation> =
            view.operations.iter().copied().filter(|operation| view.wrote(operation)).collect();
        done.sort_by_key(|operation| operation.latest());
        let mut replaced = Replaced { changes: Vec::new(), writes: Vec::new(), deletes: Vec::new() };
        let push = |list: &mut Vec<(Time, &'h Operation)>, operation: &'h Operation| {
            if list.last().is_none_or(|(_, last)| operation.called > last.called) {
                list.push((operation.latest(), operation));
            }
        };
        for operation in done {
            push(&mut replaced.changes, operation);
            if operation.op.verb() != Verb::Delete {
                push(&mut replaced.writes, operation);
            }
        }
        let mut deletes: Vec<&Operation> = view.operations.clone();
        deletes.retain(|operation| operation.op.verb() == Verb::Delete && view.may_write(operation));
        deletes.sort_by_key(|operation| operation.called);
        let mut latest = 0;
        for delete in deletes {
            latest = delete.latest().max(latest);
            replaced.deletes.push((delete.called, latest));
        }
        replaced
    }

    /// The change that was called last among those that had ended by then.
    fn by(&self, time: Time) -> Option<&'h Operation> {
        before(&self.changes, time)
    }

    /// No value is there, although one was written and no delete can have removed it since.
    fn lost(&self, view: &View<'_>, reader: &Operation) -> Option<Finding> {
        if !view.placed(reader) {
            return None;
        }
        let writer = before(&self.writes, reader.called)?;
        let count = self.deletes.partition_point(|(called, _)| *called <= reader.latest());
        let deleted = count.checked_sub(1).is_some_and(|last| self.deletes[last].1 >= writer.called);
        (!deleted).then(|| {
            let [at, when] = words::moments([reader.returned, writer.returned]);
            let sentence = format!(
                "{} at {at}, but {} had been accepted at {when}, and no delete can have removed it.{}",
                sight(reader, None),
                words::short(writer),
                view.crash_between(writer.latest(), reader.called)
            );
            Finding::new(sentence, &[writer, reader])
        })
    }
}

fn before<'h>(list: &[(Time, &'h Operation)], time: Time) -> Option<&'h Operation> {
    let count = list.partition_point(|(latest, _)| *latest < time);
    count.checked_sub(1).map(|last| list[last].1)
}
