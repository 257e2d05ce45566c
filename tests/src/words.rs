//! Operations and answers in words, for sentences.

use crate::answer::Answer;
use crate::history::{Operation, Time};
use crate::op::{Op, Verb, Write};

/// `the write of v-17 with token 5 to r1`
pub fn operation(op: &Op) -> String {
    match op {
        Op::Write(Write { res, token, value, .. }) => format!("the write of {value} with {token} to {res}"),
        Op::Read { res } => format!("the read of {res}"),
        Op::CheckedRead { res, token } => format!("the checked read of {res} with {token}"),
        Op::Claim { res, token, .. } => format!("the claim of {res} with {token}"),
        Op::Cas { res, token, expect, value, .. } => {
            let expect = expect.as_deref().unwrap_or("nothing");
            format!("the cas from {expect} to {value} with {token} on {res}")
        }
        Op::Delete { res, token, .. } => format!("the delete of {res} with {token}"),
        Op::Batch { writes } => {
            let parts: Vec<_> =
                writes.iter().map(|write| format!("{} to {} with {}", write.value, write.res, write.token)).collect();
            format!("the batch of {}", parts.join(" and "))
        }
    }
}

/// `refused as stale (fence 9)`
pub fn answer(answer: &Answer) -> String {
    let value = |value: Option<&str>| value.map_or_else(|| "no value".to_owned(), |value| format!("value {value}"));
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

/// `v-17` or `no value`
pub fn value(value: Option<&str>) -> String {
    match value {
        None => "no value".to_owned(),
        Some(text) if text.chars().count() > 40 => format!("a value of {} bytes", text.len()),
        Some(text) => text.to_owned(),
    }
}

/// `1.203 s`
pub fn seconds(time: Time) -> String {
    at_precision(time, 3)
}

/// The same for several, with as many decimals as it takes to tell them apart.
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
    use super::{moments, seconds};

    #[test]
    fn times_have_as_many_decimals_as_it_takes() {
        assert_eq!(seconds(1_203_999_999), "1.203 s");
        assert_eq!(moments([1_203_000_000, 1_101_000_000]), ["1.203 s", "1.101 s"]);
        assert_eq!(moments([1_203_400_000, 1_203_500_000]), ["1.203400 s", "1.203500 s"]);
        assert_eq!(moments([7, 8, 7]), ["0.000000007 s", "0.000000008 s", "0.000000007 s"]);
    }
}
