//! The rule alone: the cost of one verdict.
#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![allow(clippy::unwrap_used, reason = "a bench fails loudly")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use fencepost_core::{
    Access, FenceState, GuardSpec, Guards, Holder, Key, Policy, Presented, Timestamp, Token, Verdict, judge,
};

fn presented(number: u64) -> Presented {
    Presented {
        token: Token::new(0, number).unwrap(),
        holder: Some(Holder::new("worker-b#9f2c").unwrap()),
        issuer: None,
    }
}

fn verdicts(c: &mut Criterion) {
    let policy = Policy::default();
    let state = FenceState::default();
    let Verdict::Admit(step) = judge(&state, &presented(34), Access::Write, &policy) else { panic!("34 is admitted") };
    let state = state.after(step, &presented(34), Timestamp(0)).unwrap();
    let mut group = c.benchmark_group("judge");
    for (name, number) in [("stale", 33), ("equal", 34), ("raise", 35)] {
        let presented = presented(number);
        group.bench_function(name, |b| {
            b.iter(|| judge(black_box(&state), black_box(&presented), Access::Write, black_box(&policy)))
        });
    }
    group.finish();
}

fn names(c: &mut Criterion) {
    let spec = GuardSpec {
        keys: "orders/*/**".into(),
        resource: Some("orders/*".into()),
        policy: Policy::default(),
        engine: None,
    };
    let guards = Guards::new(vec![spec]).unwrap();
    let key = Key::new("orders/123/lines/4").unwrap();
    let mut group = c.benchmark_group("names");
    group.bench_function("parse_token", |b| b.iter(|| black_box("2:34").parse::<Token>()));
    group.bench_function("decode_key", |b| b.iter(|| Key::from_raw_path(black_box("orders/123%2Flines"))));
    group.bench_function("guard_of_key", |b| b.iter(|| guards.of_key(black_box(&key))));
    group.finish();
}

criterion_group!(benches, verdicts, names);
criterion_main!(benches);
