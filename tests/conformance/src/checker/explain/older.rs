//! A write with a lower token comes before one with a higher token: once the latter was answered, the older value is
//! gone.

use super::values::{attempts, saw};
use super::{Finding, View};
use crate::history::{Operation, Time};
use crate::words;

pub(super) fn find(view: &View<'_>, findings: &mut Vec<Finding>) {
    // By end time: the change of the value with the highest token so far.
    let mut changes: Vec<(Time, u64, &Operation)> = Vec::new();
    let mut done: Vec<&Operation> = view.operations.iter().copied().filter(|operation| view.wrote(operation)).collect();
    done.sort_by_key(|operation| operation.latest());
    for operation in done {
        // The result of a batch that names the resource twice is not known here.
        let [presented] = view.presented(operation)[..] else { continue };
        if changes.last().is_none_or(|(_, highest, _)| presented.token > *highest) {
            changes.push((operation.latest(), presented.token, operation));
        }
    }
    let attempts = attempts(&view.operations);
    for reader in view.operations.iter().copied().filter(|reader| view.placed(reader)) {
        let Some(value) = saw(reader).flatten() else { continue };
        let tried = attempts.get(&(view.resource, value)).into_iter().flatten();
        let writers: Vec<&Operation> = tried.copied().filter(|writer| view.may_write(writer)).collect();
        let tokens = writers.iter().flat_map(|writer| view.presented(writer)).map(|presented| presented.token);
        let before = changes.partition_point(|(latest, ..)| *latest < reader.called);
        let (Some(highest), Some(last)) = (tokens.max(), before.checked_sub(1)) else { continue };
        let (_, token, newer) = changes[last];
        if highest >= token {
            continue;
        }
        let [at, when] = words::moments([reader.returned, newer.returned]);
        let names: Vec<String> = writers.iter().map(|writer| words::short(writer)).collect();
        let sentence = format!(
            "{} found {} at {at}, which only {} can have written, but {} had been accepted at {when}: a lower token is \
             admitted only before it, so that value had been replaced.{}",
            words::short(reader),
            words::value(Some(value)),
            names.join(" or "),
            words::short(newer),
            view.crash_between(newer.latest(), reader.called)
        );
        let mut operations = writers;
        operations.extend([newer, reader]);
        findings.push(Finding::new(sentence, &operations));
    }
}
