//! Operations and answers in words, for sentences.

use crate::answer::Answer;
use crate::op::{Op, Write};

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
