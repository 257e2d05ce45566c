//! Whether another answer showed an operation that was never answered itself.

use super::reads;
use crate::answer::Answer;
use crate::history::{History, Operation, Time};
use crate::op::Op;

/// Whether an answer to another operation, before that moment, showed this operation while it was in flight.
pub(super) fn shown(history: &History, hit: &Operation, before: Time) -> bool {
    let Some((res, token)) = change(hit) else { return false };
    let same = |other: &&Operation| other.id != hit.id && other.op.resources().contains(res);
    let others: Vec<&Operation> = history.operations.iter().filter(same).collect();
    others.iter().any(|told| {
        let meanwhile = hit.called < told.returned && told.returned < before;
        let its_fence = || told.answer.high() == Some(token);
        meanwhile && (its_fence() || has_its_value(told, hit) || is_the_reason(token, told, &others))
    })
}

/// The resource and token of an operation that changes a single resource.
fn change(operation: &Operation) -> Option<(&str, u64)> {
    let resources = operation.op.resources();
    match (resources.len(), &operation.op.tokens()[..]) {
        (1, [token]) if !reads(operation) => Some((resources.first().copied()?, token.number()?)),
        _ => None,
    }
}

fn has_its_value(told: &Operation, hit: &Operation) -> bool {
    matches!((&hit.op, told.answer.value()), (Op::Write(write), Some(Some(value))) if write.value == value)
}

/// Whether this token is the only possible reason for a refusal.
fn is_the_reason(token: u64, told: &Operation, others: &[&Operation]) -> bool {
    let Some((_, refused)) = change(told).filter(|_| told.answer.is_stale()) else { return false };
    let another = |other: &&Operation| {
        let raised = !reads(other) && !matches!(other.answer, Answer::Stale { .. } | Answer::Unsupported);
        let high_enough = change(other).is_none_or(|(_, other)| other >= refused);
        other.id != told.id && other.called < told.returned && raised && high_enough
    };
    refused < token && !others.iter().any(another)
}

#[cfg(test)]
mod tests {
    use super::super::Evidence;
    use crate::answer::Answer;
    use crate::history::{Event, History, Mark, Operation, Time};
    use crate::op::Op;

    fn operation(id: u64, op: Op, called: Time, returned: Time, answer: Answer) -> Operation {
        Operation { id, client: id as u32, op, called, returned, answer, dead_by: None, copy_of: None }
    }

    /// A write with token 20 begins at 100, after one with token 10, and is killed at 200. The given operation is
    /// answered at 150.
    fn shown(op: Op, answer: Answer) -> bool {
        let operations = vec![
            operation(1, Op::write("r", 10, "a", "v-1"), 0, 50, Answer::ok()),
            operation(2, Op::write("r", 20, "a", "v-2"), 100, 210, Answer::unknown("reset")),
            operation(3, op, 120, 150, answer),
        ];
        let marks = vec![Mark::new(200, Event::Killed)];
        let evidence = Evidence::of(&History { operations, marks, ..History::default() });
        assert_eq!(evidence.kills_in_flight, 1);
        evidence.shown_in_flight == 1
    }

    #[test]
    fn a_refusal_a_value_or_a_fence_shows_what_is_in_flight() {
        let stale = |high| Answer::Stale { high };
        assert!(shown(Op::write("r", 19, "b", "v-3"), stale(None)), "nothing else is above 19");
        assert!(!shown(Op::write("r", 9, "b", "v-3"), stale(None)), "10 is enough of a reason");
        assert!(shown(Op::write("r", 9, "b", "v-3"), stale(Some(20))), "it names the fence");
        assert!(!shown(Op::write("s", 19, "b", "v-3"), stale(None)), "another resource");
        assert!(!shown(Op::write("r", 19, "b", "v-3"), Answer::ok()));
        let read = |value: &str, high| Answer::Ok { value: Some(Some(value.to_owned())), high };
        assert!(shown(Op::read("r"), read("v-2", None)));
        assert!(shown(Op::read("r"), read("v-1", Some(20))));
        assert!(!shown(Op::read("r"), read("v-1", Some(10))));
    }
}
