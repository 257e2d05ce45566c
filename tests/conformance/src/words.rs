//! Operations and answers in words, for sentences.

use crate::answer::Answer;
use crate::history::{Operation, Time};
use crate::op::{Op, Verb, Write};

/// `the write of v-17 with token 5 to r1`
pub fn operation(op: &Op) -> String {
    match op {
        Op::Write(Write { res, token, value, .. }) => format!("the write of {} with {token} to {res}", text(value)),
        Op::Read { res } => format!("the read of {res}"),
        Op::CheckedRead { res, token } => format!("the checked read of {res} with {token}"),
        Op::Claim { res, token, .. } => format!("the claim of {res} with {token}"),
        Op::Cas { res, token, expect, value, .. } => {
            let expect = expect.as_deref().map_or_else(|| "nothing".to_owned(), text);
            format!("the cas from {expect} to {} with {token} on {res}", text(value))
        }
        Op::Delete { res, token, .. } => format!("the delete of {res} with {token}"),
        Op::Batch { writes } => {
            let part = |write: &Write| format!("{} to {} with {}", text(&write.value), write.res, write.token);
            let parts: Vec<_> = writes.iter().map(part).collect();
            format!("the batch of {}", parts.join(" and "))
        }
    }
}

/// `refused as stale (fence 9)`
pub fn answer(answer: &Answer) -> String {
    let value =
        |value: Option<&str>| value.map_or_else(|| "no value".to_owned(), |value| format!("value {}", text(value)));
    let fence = answer.high().map(|high| format!("fence {high}"));
    let more: Vec<String> = match answer {
        Answer::Ok { .. } | Answer::Mismatch { .. } => answer.value().map(value).into_iter().chain(fence).collect(),
        Answer::Stale { .. } => fence.into_iter().collect(),
        Answer::Error { code, .. } => vec![code.clone()],
        Answer::Unknown { why } => vec![why.clone()],
        Answer::Unsupported => Vec::new(),
    };
    let more: Vec<String> = more.into_iter().filter(|text| !text.is_empty()).collect();
    match more.is_empty() {
        true => answer.word().to_owned(),
        false => format!("{} ({})", answer.word(), more.join(", ")),
    }
}

/// `write #41 (token 5)`
pub fn short(operation: &Operation) -> String {
    let verb = match operation.op.verb() {
        Verb::CheckedRead => "checked read",
        verb => verb.name(),
    };
    let tokens: Vec<String> = operation.op.tokens().into_iter().map(ToString::to_string).collect();
    match tokens.is_empty() {
        true => format!("{verb} #{}", operation.id),
        false => format!("{verb} #{} ({})", operation.id, tokens.join(", ")),
    }
}

/// With a capital letter, as at the beginning of a sentence.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}

/// `v-17` or `no value`
pub fn value(value: Option<&str>) -> String {
    value.map_or_else(|| "no value".to_owned(), text)
}

/// A value; for a large one its start, which identifies it, and its size.
fn text(value: &str) -> String {
    const LONG: usize = 40;
    const START: usize = 16;
    match value.chars().nth(LONG) {
        None if value.is_empty() => "an empty value".to_owned(),
        None => value.to_owned(),
        Some(_) => format!("{}… ({} bytes)", value.chars().take(START).collect::<String>(), value.len()),
    }
}

/// `1.203 s`
pub fn seconds(time: Time) -> String {
    at_precision(time, 3)
}

/// The same for several times, with enough decimals to distinguish them.
pub fn moments<const N: usize>(times: [Time; N]) -> [String; N] {
    let told_apart = |digits: usize| {
        let coarse = |time: Time| time / 10_u64.pow(9 - digits as u32);
        times.iter().all(|a| times.iter().all(|b| a == b || coarse(*a) != coarse(*b)))
    };
    let digits = [3, 6].into_iter().find(|digits| told_apart(*digits)).unwrap_or(9);
    times.map(|time| at_precision(time, digits))
}

fn at_precision(time: Time, digits: usize) -> String {
    let (whole, rest) = (time / 1_000_000_000, time % 1_000_000_000);
    format!("{whole}.{:0digits$} s", rest / 10_u64.pow(9 - digits as u32))
}

#[cfg(test)]
mod tests {
    use super::{moments, seconds, value};

    #[test]
    fn a_value_is_known_by_its_start() {
        assert_eq!(value(None), "no value");
        assert_eq!(value(Some("")), "an empty value");
        assert_eq!(value(Some("v-17")), "v-17");
        assert_eq!(value(Some(&format!("v-17-{}", "é".repeat(100)))), "v-17-ééééééééééé… (205 bytes)");
    }

    #[test]
    fn times_have_as_many_decimals_as_it_takes() {
        assert_eq!(seconds(1_203_999_999), "1.203 s");
        assert_eq!(moments([1_203_000_000, 1_101_000_000]), ["1.203 s", "1.101 s"]);
        assert_eq!(moments([1_203_400_000, 1_203_500_000]), ["1.203400 s", "1.203500 s"]);
        assert_eq!(moments([7, 8, 7]), ["0.000000007 s", "0.000000008 s", "0.000000007 s"]);
    }
}
