//! The parts of the hot path that are measured.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use fencepost_core::{
    Access, FenceState, Guards, Holder, Key, Policy, Presented, ProblemDocument, ProblemKind, Resource, Timestamp,
    Token, Verdict, judge,
};
use fencepost_store::engines::memory::Memory;
use fencepost_store::record::{Value, decode_fence, encode_fence};
use fencepost_store::{
    Condition, NoObserver, Operation, Put, Store, StoreOptions, TransactOutcome, Transaction, WriteOutcome,
};

/// One part of the hot path.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// The larger number of repetitions.
    pub(crate) repetitions: u64,
    /// How often it is run; the run with the fewest instructions counts. Threads that wait for each other sometimes
    /// take more.
    pub(crate) runs: usize,
    /// The allowed growth in percent.
    pub(crate) tolerance: u64,
    pub(crate) run: fn(u64) -> Result<(), String>,
}

/// All parts.
pub(crate) const PARTS: &[Part] = &[
    pure("judge-keep", "a write with the current token is judged", |count| judged(34, count)),
    pure("judge-raise", "a write with a higher token is judged", |count| judged(35, count)),
    pure("judge-stale", "a write with an old token is judged", |count| judged(33, count)),
    pure("name-key", "a key is parsed, and its guard and resource are found", names),
    pure("fence-encode", "a fence becomes bytes", |count| {
        let fence = fence()?;
        repeat(count, || encode_fence(black_box(&fence)))
    }),
    pure("fence-decode", "bytes become a fence", |count| {
        let bytes = encode_fence(&fence()?);
        repeat(count, || decode_fence(black_box(&bytes)))
    }),
    pure("value-encode", "a value of 256 bytes becomes bytes", |count| {
        let value = value()?;
        repeat(count, || black_box(&value).encode())
    }),
    pure("value-decode", "bytes become a value of 256 bytes", |count| {
        let bytes = value()?.encode();
        repeat(count, || Value::decode(black_box(&bytes)))
    }),
    pure("problem-json", "the document of a refusal becomes JSON", |count| {
        let document = document()?;
        repeat(count, || black_box(&document).to_json())
    }),
    pure("problem-json-by-serde", "the same by serde_json, for comparison", |count| {
        let document = document()?;
        repeat(count, || serde_json::to_vec(black_box(&document)))
    }),
    pure("time-text", "a timestamp becomes text", |count| {
        repeat(count, || black_box(Timestamp(1_769_821_323_456)).text())
    }),
    through_store("store-put", "a put through the store: load, judge, apply, commit, answer", |count| puts(34, count)),
    through_store("store-stale", "a stale put, refused by the store", |count| puts(33, count)),
    through_store("store-txn", "a transaction of four keys of four resources through the store", txns),
];

const fn pure(name: &'static str, what: &'static str, run: fn(u64) -> Result<(), String>) -> Part {
    Part { name, what, repetitions: 20_000, runs: 1, tolerance: 3, run }
}

const fn through_store(name: &'static str, what: &'static str, run: fn(u64) -> Result<(), String>) -> Part {
    Part { name, what, repetitions: 5_000, runs: 3, tolerance: 8, run }
}

pub(crate) fn find(name: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.name == name)
}

fn repeat<T>(count: u64, mut what: impl FnMut() -> T) -> Result<(), String> {
    for _ in 0..count {
        black_box(what());
    }
    Ok(())
}

fn presented(number: u64) -> Result<Presented, String> {
    let holder = Holder::new("worker-b#9f2c").map_err(|error| error.to_string())?;
    Ok(Presented { token: token(number)?, holder: Some(holder), issuer: None })
}

fn token(number: u64) -> Result<Token, String> {
    Token::new(0, number).ok_or_else(|| "tokens start at 1".to_owned())
}

fn key(number: u64) -> Result<Key, String> {
    Key::new(&format!("orders/{number}")).map_err(|error| error.to_string())
}

/// A fence at 34.
fn fence() -> Result<FenceState, String> {
    let (state, presented) = (FenceState::default(), presented(34)?);
    match judge(&state, &presented, Access::Write, &Policy::default()) {
        Verdict::Admit(step) => {
            state.after(step, &presented, Timestamp(0)).ok_or_else(|| "34 did not raise".to_owned())
        }
        verdict => Err(format!("34 is not admitted: {verdict:?}")),
    }
}

/// What a stale writer is answered.
fn document() -> Result<ProblemDocument, String> {
    let detail = "token 33 is stale for `orders/123`: the fence is 34, raised by `worker-b#9f2c` 12 s ago.";
    Ok(ProblemDocument {
        advice: Some("Your lock was taken over; stop, and acquire it again. Do not retry with this token.".into()),
        resource: Some(Resource::new("orders/123").map_err(|error| error.to_string())?),
        presented: Some(token(33)?),
        fence: Some(token(34)?),
        generation: Some(0),
        holder: presented(34)?.holder,
        raised_at: Some(Timestamp(1_769_821_323_456).text()),
        outcome: Some("not-applied".into()),
        request_id: Some("9f2c51aa-123456".into()),
        ..ProblemDocument::new(ProblemKind::Stale, detail)
    })
}

fn value() -> Result<Value, String> {
    let content_type = Some("text/plain".to_owned());
    Ok(Value { token: Some(token(34)?), content_type, body: Bytes::from_static(&[b'x'; 256]) })
}

fn judged(number: u64, count: u64) -> Result<(), String> {
    let (fence, presented, policy) = (fence()?, presented(number)?, Policy::default());
    repeat(count, || judge(black_box(&fence), black_box(&presented), Access::Write, black_box(&policy)))
}

fn names(count: u64) -> Result<(), String> {
    let guards = Guards::default();
    repeat(count, || Key::new(black_box("orders/123")).map(|key| guards.of_key(&key).map(|guarded| guarded.resource)))
}

/// Opens a store on the memory engine, with the fences of a few resources at 34, and runs something on it.
fn with_store<F: Future<Output = Result<(), String>>>(what: impl FnOnce(Arc<Store>) -> F) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let engine = Arc::new(Memory::default());
        let opened = Store::open(engine, Guards::default(), StoreOptions::default(), Arc::new(NoObserver)).await;
        let store = Arc::new(opened.map_err(|error| error.to_string())?);
        for number in 0..KEYS {
            write(&store, number, 34).await?;
        }
        what(store).await
    })
}

const KEYS: u64 = 16;

async fn write(store: &Store, number: u64, with: u64) -> Result<WriteOutcome, String> {
    let put = Put {
        key: key(number % KEYS)?,
        presented: Some(presented(with)?),
        condition: Condition::Always,
        content_type: None,
        body: Bytes::from_static(&[b'x'; 256]),
        once: None,
    };
    store.put(put).await.map_err(|failure| format!("{failure:?}"))
}

fn puts(with: u64, count: u64) -> Result<(), String> {
    with_store(|store| async move {
        for number in 0..count {
            let outcome = write(&store, number, with).await?;
            if matches!(outcome, WriteOutcome::Applied(_)) != (with == 34) {
                return Err(format!("unexpected: {outcome:?}"));
            }
        }
        Ok(())
    })
}

fn txns(count: u64) -> Result<(), String> {
    with_store(|store| async move {
        for number in 0..count {
            let (mut tokens, mut operations) = (Vec::with_capacity(4), Vec::with_capacity(4));
            for at in 0..4 {
                let key = key((number + at) % KEYS)?;
                let resource = Resource::new(key.as_str()).map_err(|error| error.to_string())?;
                tokens.push((resource, presented(34)?));
                let body = Bytes::from_static(&[b'x'; 256]);
                operations.push((key, Operation::Put { content_type: None, body }));
            }
            let body = Bytes::new();
            let transaction =
                Transaction { tokens, conditions: Vec::new(), operations, max_bytes: 0, body, once: None };
            match store.transact(transaction).await {
                Ok(TransactOutcome::Transacted(_)) => {}
                other => return Err(format!("unexpected: {other:?}")),
            }
        }
        Ok(())
    })
}
