//! Random histories.

use fencepost_core::{Holder, Issuer, Presented, Token};
use proptest::prelude::*;

use super::command::{
    Command, GrantId, KEYS, LockVerb, RESOURCES, Retry, Shape, Step, When, Write, WriteId, resource_of,
};

/// The generation is relative to the resource's own: 1 is the next, [`BEFORE`] the previous one.
fn any_token() -> impl Strategy<Value = Presented> {
    let generation = prop_oneof![16 => Just(0u32), 1 => Just(1u32), 1 => Just(BEFORE)];
    let number = prop_oneof![60 => 1u64..9, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 1)];
    let holder = prop_oneof![3 => Just(None), 2 => Just(Some("A#1")), 1 => Just(Some("B#2"))];
    let issuer = prop_oneof![8 => Just(None), 2 => Just(Some("etcd:1")), 1 => Just(Some("redis:1"))];
    (generation, number, holder, issuer).prop_map(|(generation, number, holder, issuer)| Presented {
        token: Token::new(generation, number).unwrap(),
        holder: holder.map(|holder| Holder::new(holder).unwrap()),
        issuer: issuer.map(|issuer| Issuer::new(issuer).unwrap()),
    })
}

const BEFORE: u32 = 2;

fn any_presented() -> impl Strategy<Value = Option<Presented>> {
    prop_oneof![1 => Just(None), 20 => any_token().prop_map(Some)]
}

fn any_when() -> impl Strategy<Value = When> {
    prop_oneof![
        6 => Just(When::Always),
        1 => Just(When::Absent),
        1 => Just(When::Exists),
        2 => Just(When::Unchanged),
        1 => (0u64..60).prop_map(|id| When::Once(WriteId(id))),
        1 => (0i64..20).prop_map(When::Is),
        1 => (-5i64..30).prop_map(When::AtLeast),
        1 => (-5i64..30).prop_map(When::AtMost),
    ]
}

fn any_put() -> impl Strategy<Value = Step> {
    // Some are so large that the engine stores them differently.
    prop_oneof![4 => Just(0usize), 4 => 1usize..60, 1 => Just(20_000)]
        .prop_map(|bytes| Step::Put { id: WriteId(0), bytes })
}

fn any_add() -> impl Strategy<Value = Step> {
    let bounds = prop_oneof![Just((i64::MIN, i64::MAX)), Just((0, 20)), Just((-3, 3))];
    let by = prop_oneof![20 => -4i64..5, 1 => Just(i64::MAX), 1 => Just(i64::MIN)];
    (by, bounds).prop_map(|(by, (min, max))| Step::Add { id: WriteId(0), by, min, max })
}

/// Few keys, so that most requests with a key are retries; a few reuse a key for a different request.
fn any_retry(keys: std::ops::Range<u8>) -> impl Strategy<Value = Option<Retry>> {
    let retry = (keys, prop_oneof![7 => Just(0u8), 1 => Just(1u8)]);
    prop_oneof![1 => Just(None), 1 => retry.prop_map(|(key, request)| Some(Retry { key, request }))]
}

const SINGLE_KEYS: std::ops::Range<u8> = 0..5;
const TRANSACTION_KEYS: std::ops::Range<u8> = 4..9;
const LOCK_KEYS: std::ops::Range<u8> = 9..11;

fn any_single() -> impl Strategy<Value = Write> {
    let step = prop_oneof![3 => any_put(), 1 => Just(Step::Delete)];
    (prop::sample::select(&KEYS[..]), any_presented(), any_when(), step, any_retry(SINGLE_KEYS)).prop_map(
        |(key, presented, when, step, retry)| {
            let resource = *RESOURCES.iter().find(|name| **name == resource_of(key).as_str()).unwrap();
            Write {
                shape: Shape::Single,
                tokens: presented.map(|presented| (resource, presented)).into_iter().collect(),
                conditions: vec![(key, when)],
                steps: vec![(key, step)],
                retry,
            }
        },
    )
}

/// Has tokens for most of the resources that it names, and for no others.
fn any_transaction() -> impl Strategy<Value = Write> {
    let step = prop_oneof![3 => any_put(), 1 => Just(Step::Delete), 3 => any_add(), 2 => Just(Step::Get)];
    let steps = prop::sample::subsequence(&KEYS[..], 0..4)
        .prop_flat_map(move |keys| (Just(keys.clone()), prop::collection::vec(step.clone(), keys.len())));
    let conditions = prop::collection::vec((prop::sample::select(&KEYS[..]), any_when()), 0..3);
    let tokens = prop::collection::vec(any_presented(), RESOURCES.len());
    (steps, conditions, tokens, any_retry(TRANSACTION_KEYS)).prop_map(|((keys, steps), conditions, tokens, retry)| {
        let steps: Vec<_> = keys.into_iter().zip(steps).collect();
        let named = |resource: &str| {
            let mut keys = steps.iter().map(|(key, _)| key).chain(conditions.iter().map(|(key, _)| key));
            keys.any(|key| resource_of(key).as_str() == resource)
        };
        let tokens = RESOURCES.into_iter().zip(tokens).filter(|(resource, _)| named(resource));
        let tokens = tokens.filter_map(|(resource, presented)| Some((resource, presented?))).collect();
        Write { shape: Shape::Transaction, tokens, conditions, steps, retry }
    })
}

/// Stands for the lease that the lock has before the group.
const CURRENT: GrantId = GrantId(u64::MAX);

fn any_lock() -> impl Strategy<Value = LockVerb> {
    let grant = || prop_oneof![3 => Just(CURRENT), 1 => (0u64..6).prop_map(GrantId)];
    let holder = prop::sample::select(&["A#1", "B#2", "C#3"][..]);
    let acquire =
        (holder, any_retry(LOCK_KEYS)).prop_map(|(holder, retry)| LockVerb::Acquire { id: GrantId(0), holder, retry });
    prop_oneof![
        4 => acquire,
        2 => grant().prop_map(LockVerb::Renew),
        2 => grant().prop_map(LockVerb::Release),
        1 => Just(LockVerb::ForceRelease),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    let resource = || prop::sample::select(&RESOURCES[..]);
    // Relative to the current generation.
    let from = || prop_oneof![3 => Just(0u32), 1 => Just(1u32)];
    let issuer = prop_oneof![3 => Just(None), 1 => Just(Some(Issuer::new("etcd:1").unwrap()))];
    prop_oneof![
        16 => any_single().prop_map(Command::Write),
        12 => any_transaction().prop_map(Command::Write),
        6 => (resource(), any_presented()).prop_map(|(resource, presented)| Command::Claim { resource, presented }),
        12 => (resource(), any_lock()).prop_map(|(resource, verb)| Command::Lock { resource, verb }),
        1 => (resource(), from(), issuer).prop_map(|(resource, from, issuer)| Command::Rotate { resource, from, issuer }),
        1 => from().prop_map(|from| Command::RotateAll { from }),
        1 => (0u8..11).prop_map(|key| Command::Abandon { key }),
    ]
}

/// Groups of commands. Each write and each grant has its own id; a command that stands alone is its own group.
pub(crate) fn any_history() -> impl Strategy<Value = Vec<Vec<Command>>> {
    prop::collection::vec(prop::collection::vec(any_command(), 1..12), 1..8).prop_map(|groups| {
        let (mut history, mut writes, mut grants) = (Vec::new(), (0..).map(WriteId), (0..).map(GrantId));
        for group in groups {
            let mut together = Vec::new();
            for mut command in group {
                name(&mut command, &mut writes, &mut grants);
                if command.stands_alone() {
                    history.push(std::mem::take(&mut together));
                    history.push(vec![command]);
                } else {
                    together.push(command);
                }
            }
            history.push(together);
        }
        history.retain(|group| !group.is_empty());
        history
    })
}

fn name(command: &mut Command, writes: &mut impl Iterator<Item = WriteId>, grants: &mut impl Iterator<Item = GrantId>) {
    match command {
        Command::Write(write) => {
            for (_, step) in &mut write.steps {
                if let Step::Put { id, .. } | Step::Add { id, .. } = step {
                    *id = writes.next().unwrap();
                }
            }
        }
        Command::Lock { verb: LockVerb::Acquire { id, .. }, .. } => *id = grants.next().unwrap(),
        _ => {}
    }
}

impl Command {
    /// The command with the generations and leases as they are before its group: those `of` a resource, and the `base`
    /// generation of the store.
    pub(crate) fn placed(
        &self,
        of: impl Fn(&str) -> u32,
        base: u32,
        lease: impl Fn(&str) -> Option<GrantId>,
    ) -> Command {
        let place = |resource: &str, presented: &mut Presented| {
            let (here, token) = (of(resource), presented.token);
            let generation = match token.generation() {
                BEFORE => here.saturating_sub(1),
                above => here + above,
            };
            presented.token = Token::from_parts(generation, token.number());
        };
        let mut placed = self.clone();
        match &mut placed {
            Command::Write(write) => {
                write.tokens.iter_mut().for_each(|(resource, presented)| place(resource, presented));
            }
            Command::Claim { resource, presented: Some(presented) } => place(resource, presented),
            Command::Rotate { resource, from, .. } => *from += of(resource),
            Command::RotateAll { from } => *from += base,
            Command::Lock { resource, verb: LockVerb::Renew(id) | LockVerb::Release(id) } if *id == CURRENT => {
                *id = lease(resource).unwrap_or(CURRENT);
            }
            Command::Claim { presented: None, .. } | Command::Lock { .. } | Command::Abandon { .. } => {}
        }
        placed
    }
}
