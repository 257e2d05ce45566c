//! The cost of judging a history: the conformance suite's checker.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use fencepost_conformance::checker::{Verdict, check};
use fencepost_conformance::history::{History, Operation};
use fencepost_conformance::random::Random;
use fencepost_conformance::{Answer, Op};

const CLIENTS: u64 = 8;
const LIMIT: Duration = Duration::from_secs(60);

/// A correct history: operation n takes effect at 10 n, within an interval that overlaps those of the other clients. Of
/// a hundred answers, `unknown` are lost.
fn history(count: u64, resources: u64, unknown: u64) -> History {
    let mut random = Random::from_seed(7);
    let mut states: Vec<(Option<u64>, Option<String>)> = vec![(None, None); resources as usize];
    let mut operations = Vec::new();
    for number in 0..count {
        let resource = random.below(resources);
        let res = format!("r{resource}");
        let (fence, value) = &mut states[resource as usize];
        let (op, answer) = if random.chance(40) {
            (Op::read(&res), Answer::Ok { value: Some(value.clone()), high: *fence })
        } else {
            let token = fence.unwrap_or(8) + random.below(4) - 2;
            let written = format!("v-{number}");
            let op = Op::write(&res, token, "h", &written);
            if fence.is_some_and(|fence| token < fence) {
                (op, Answer::Stale { high: *fence })
            } else {
                (*fence, *value) = (Some(token), Some(written));
                (op, Answer::Ok { value: None, high: *fence })
            }
        };
        let answer = if random.chance(unknown) { Answer::unknown("lost") } else { answer };
        let point = 10 * number + 40;
        let (called, returned) = (point - random.below(38), point + random.below(38));
        let (id, client) = (number + 1, (number % CLIENTS) as u32);
        operations.push(Operation { id, client, op, called, returned, answer, dead_by: None, copy_of: None });
    }
    operations.sort_by_key(|operation| operation.called);
    History { operations, ..History::default() }
}

/// The same with lost answers, but one read has the answer of a much earlier one.
fn wrong() -> History {
    let mut history = history(200, 1, 10);
    let reads = |operation: &&mut Operation| operation.op == Op::read("r0") && operation.answer.is_ok();
    let mut values: Vec<_> = history.operations.iter_mut().filter(reads).map(|read| &mut read.answer).collect();
    let middle = values.len() / 2;
    let early = values[middle - 10].clone();
    *values[middle] = early;
    history
}

fn checker(c: &mut Criterion) {
    let mut group = c.benchmark_group("checker");
    for (name, history) in [
        ("200_operations", history(200, 1, 0)),
        ("200_operations_a_fifth_unknown", history(200, 1, 20)),
        ("20000_operations_on_1000_resources", history(20_000, 1_000, 5)),
    ] {
        assert_eq!(check(&history, LIMIT), Verdict::Explained, "{name}");
        group.bench_function(name, |b| b.iter(|| check(black_box(&history), LIMIT)));
    }
    let wrong = wrong();
    assert!(matches!(check(&wrong, LIMIT), Verdict::Violated(_)));
    group.bench_function("200_operations_violated", |b| b.iter(|| check(black_box(&wrong), LIMIT)));
    group.finish();
}

criterion_group!(benches, checker);
criterion_main!(benches);
