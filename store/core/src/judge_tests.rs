use super::*;
use crate::{IssuerRule, Timestamp};
use proptest::prelude::*;
use std::num::NonZeroU64;

fn presented(token: &str) -> Presented {
    Presented { token: token.parse().unwrap(), holder: None, issuer: None }
}

fn by(token: &str, holder: &str) -> Presented {
    Presented { holder: Some(Holder::new(holder).unwrap()), ..presented(token) }
}

fn from(token: &str, issuer: &str) -> Presented {
    Presented { issuer: Some(Issuer::new(issuer).unwrap()), ..presented(token) }
}

fn fence(token: &str) -> FenceState {
    let token: Token = token.parse().unwrap();
    FenceState { generation: token.generation(), high: Some(token.number()), ..FenceState::default() }
}

fn refused(state: &FenceState, p: &Presented, access: Access, policy: &Policy) -> Reason {
    match judge(state, p, access, policy) {
        Verdict::Refuse(reason) => reason,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

const ACCESSES: [Access; 3] = [Access::Write, Access::Claim, Access::CheckedRead];

#[test]
fn row_1_a_lower_generation_is_retired() {
    for access in ACCESSES {
        assert_eq!(refused(&fence("2:5"), &presented("1:9"), access, &Policy::default()), Reason::RetiredGeneration);
        assert_eq!(
            refused(&FenceState::unseen(1), &presented("9"), access, &Policy::default()),
            Reason::RetiredGeneration
        );
    }
}

#[test]
fn row_2_a_higher_generation_is_unknown() {
    for access in ACCESSES {
        assert_eq!(refused(&fence("5"), &presented("1:9"), access, &Policy::default()), Reason::UnknownGeneration);
    }
}

#[test]
fn row_3_two_known_issuers_must_agree() {
    let bound = FenceState { issuer: Some(Issuer::new("etcd:a").unwrap()), ..fence("5") };
    for access in ACCESSES {
        for token in ["4", "5", "6"] {
            assert_eq!(refused(&bound, &from(token, "redis:b"), access, &Policy::default()), Reason::ForeignIssuer);
        }
        assert_eq!(judge(&bound, &from("5", "etcd:a"), access, &Policy::default()), Verdict::Admit(Step::Keep));
        assert_eq!(judge(&bound, &presented("5"), access, &Policy::default()), Verdict::Admit(Step::Keep));
    }
}

#[test]
fn row_3b_a_guard_may_require_an_issuer() {
    let policy = Policy { issuer: IssuerRule::Required, ..Policy::default() };
    for access in ACCESSES {
        assert_eq!(refused(&fence("5"), &presented("6"), access, &policy), Reason::MissingIssuer);
        assert!(matches!(judge(&fence("5"), &from("6", "etcd:a"), access, &policy), Verdict::Admit(_)));
    }
}

#[test]
fn row_4_below_the_fence_is_stale() {
    for access in ACCESSES {
        assert_eq!(refused(&fence("34"), &presented("33"), access, &Policy::default()), Reason::Stale);
    }
}

#[test]
fn t02_row_5_an_equal_token_of_another_holder_is_a_collision() {
    let held = FenceState { holder: Some(Holder::new("b#1").unwrap()), ..fence("34") };
    for access in ACCESSES {
        assert_eq!(refused(&held, &by("34", "a#1"), access, &Policy::default()), Reason::Collision);
        assert_eq!(judge(&held, &by("34", "b#1"), access, &Policy::default()), Verdict::Admit(Step::Keep));
        assert_eq!(judge(&held, &presented("34"), access, &Policy::default()), Verdict::Admit(Step::Keep));
    }
}

#[test]
fn row_6_spent_only_for_writes_only_by_policy_only_after_a_write() {
    let policy = Policy { equal: Equal::Reject, ..Policy::default() };
    let spent = FenceState { spent: true, ..fence("34") };
    assert_eq!(refused(&spent, &presented("34"), Access::Write, &policy), Reason::Spent);
    assert_eq!(judge(&spent, &presented("34"), Access::Claim, &policy), Verdict::Admit(Step::Keep));
    assert_eq!(judge(&spent, &presented("34"), Access::CheckedRead, &policy), Verdict::Admit(Step::Keep));
    assert_eq!(judge(&fence("34"), &presented("34"), Access::Write, &policy), Verdict::Admit(Step::Keep));
    assert_eq!(judge(&spent, &presented("34"), Access::Write, &Policy::default()), Verdict::Admit(Step::Keep));
}

#[test]
fn row_7_an_equal_token_fills_in_what_is_unknown() {
    let verdict = judge(&fence("34"), &by("34", "b#1"), Access::Write, &Policy::default());
    assert_eq!(verdict, Verdict::Admit(Step::Fill));
    let filled = fence("34").after(Step::Fill, &by("34", "b#1"), Timestamp(9)).unwrap();
    assert_eq!(filled.holder, Some(Holder::new("b#1").unwrap()));
    assert_eq!(filled.high, NonZeroU64::new(34));
    assert_eq!(
        judge(&fence("34"), &from("34", "etcd:a"), Access::Write, &Policy::default()),
        Verdict::Admit(Step::Fill)
    );
}

#[test]
fn row_8_a_newer_token_must_claim_where_required() {
    let policy = Policy { claim: Claim::Required, ..Policy::default() };
    assert_eq!(refused(&fence("34"), &presented("35"), Access::Write, &policy), Reason::Unclaimed);
    assert_eq!(refused(&FenceState::default(), &presented("1"), Access::Write, &policy), Reason::Unclaimed);
    assert_eq!(judge(&fence("34"), &presented("35"), Access::Claim, &policy), Verdict::Admit(Step::Raise));
    assert_eq!(judge(&fence("34"), &presented("35"), Access::CheckedRead, &policy), Verdict::Admit(Step::Raise));
    assert_eq!(judge(&fence("34"), &presented("34"), Access::Write, &policy), Verdict::Admit(Step::Keep));
}

#[test]
fn row_9_a_jump_beyond_the_limit_is_implausible() {
    let policy = Policy { max_jump: NonZeroU64::new(10), ..Policy::default() };
    assert_eq!(refused(&fence("34"), &presented("45"), Access::Write, &policy), Reason::Implausible);
    assert_eq!(refused(&fence("34"), &presented("45"), Access::Claim, &policy), Reason::Implausible);
    assert_eq!(judge(&fence("34"), &presented("44"), Access::Write, &policy), Verdict::Admit(Step::Raise));
    assert_eq!(judge(&fence("34"), &presented("45"), Access::CheckedRead, &policy), Verdict::Admit(Step::Raise));
    assert_eq!(judge(&FenceState::default(), &presented("4500"), Access::Write, &policy), Verdict::Admit(Step::Raise));
    let top = presented("18446744073709551615");
    assert_eq!(judge(&fence("18446744073709551610"), &top, Access::Write, &policy), Verdict::Admit(Step::Raise));
    let both = Policy { claim: Claim::Required, ..policy };
    assert_eq!(refused(&fence("34"), &presented("99"), Access::Write, &both), Reason::Unclaimed);
}

#[test]
fn row_10_a_newer_token_raises() {
    let old = FenceState {
        spent: true,
        holder: Some(Holder::new("a#1").unwrap()),
        issuer: Some(Issuer::new("etcd:a").unwrap()),
        ..fence("34")
    };
    let p = presented("35");
    assert_eq!(judge(&old, &p, Access::Write, &Policy::default()), Verdict::Admit(Step::Raise));
    let raised = old.after(Step::Raise, &p, Timestamp(9)).unwrap();
    assert_eq!(raised.high, NonZeroU64::new(35));
    assert!(!raised.spent);
    assert_eq!(raised.holder, None, "the holder is replaced, even by none");
    assert_eq!(raised.issuer, old.issuer, "the issuer is kept if absent");
    assert_eq!(raised.raised_at, Some(Timestamp(9)));
}

#[test]
fn t15_no_token_is_a_refusal_unless_observing() {
    let observe = Policy { mode: Mode::Observe, ..Policy::default() };
    assert_eq!(decide(&fence("1"), None, Access::Write, &Policy::default()), Verdict::Refuse(Reason::MissingToken));
    assert_eq!(decide(&fence("1"), None, Access::Write, &observe), Verdict::Observe(Reason::MissingToken));
}

#[test]
fn a_base_generation_above_its_own_retires_a_resource() {
    let stored = fence("34");
    assert_eq!(*FenceState::under(Some(&stored), 0), stored);
    assert_eq!(*FenceState::under(Some(&stored), 2), FenceState::unseen(2));
    assert_eq!(*FenceState::under(None, 2), FenceState::unseen(2));
    assert_eq!(*FenceState::under(Some(&fence("3:1")), 2), fence("3:1"));
}

/// Few distinct values, so that equal tokens, holders and issuers occur together.
fn any_presented() -> impl Strategy<Value = Presented> {
    (0u32..3, 1u64..8, 0usize..4, 0usize..3).prop_map(|(generation, number, holder, issuer)| Presented {
        token: Token::new(generation, number).unwrap(),
        holder: ["a#1", "b#1", "c#1"].get(holder).map(|h| Holder::new(h).unwrap()),
        issuer: ["etcd:a", "redis:b"].get(issuer).map(|i| Issuer::new(i).unwrap()),
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 0u64..4).prop_map(
        |(equal, claim, mode, issuer, jump)| Policy {
            equal: if equal { Equal::Reject } else { Equal::Accept },
            claim: if claim { Claim::Required } else { Claim::Optional },
            mode: if mode { Mode::Observe } else { Mode::Enforce },
            issuer: if issuer { IssuerRule::Required } else { IssuerRule::Optional },
            max_jump: NonZeroU64::new(jump),
        },
    )
}

fn any_access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::Write), Just(Access::Claim), Just(Access::CheckedRead)]
}

/// Returns whether the state explains the refusal (G5).
fn justified(reason: Reason, state: &FenceState, p: &Presented, access: Access, policy: &Policy) -> bool {
    let fence = state.token();
    match reason {
        Reason::MissingToken => false,
        Reason::MissingIssuer => p.issuer.is_none() && policy.issuer == IssuerRule::Required,
        Reason::RetiredGeneration => p.token.generation() < state.generation,
        Reason::UnknownGeneration => p.token.generation() > state.generation,
        Reason::ForeignIssuer => p.issuer.is_some() && state.issuer.is_some() && p.issuer != state.issuer,
        Reason::Stale => fence.is_some_and(|fence| p.token < fence),
        Reason::Collision => {
            fence == Some(p.token) && p.holder.is_some() && state.holder.is_some() && p.holder != state.holder
        }
        Reason::Spent => {
            fence == Some(p.token) && state.spent && policy.equal == Equal::Reject && access == Access::Write
        }
        Reason::Unclaimed => {
            fence.is_none_or(|fence| p.token > fence) && policy.claim == Claim::Required && access == Access::Write
        }
        Reason::Implausible => match (fence, policy.max_jump) {
            (Some(fence), Some(jump)) => p.token.number().get() - fence.number().get() > jump.get(),
            _ => false,
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// G1, G2, G5 and observe mode over random histories of one resource, with rotations in between.
    #[test]
    fn histories(
        policy in any_policy(),
        history in prop::collection::vec((any_access(), prop::option::weighted(0.9, any_presented()), prop::bool::weighted(0.03)), 1..60),
    ) {
        let mut state = FenceState::default();
        for (access, presented, rotate) in history {
            if rotate {
                state = FenceState::unseen(state.generation + 1);
            }
            let before = state.clone();
            match (decide(&state, presented.as_ref(), access, &policy), &presented) {
                (Verdict::Admit(step), Some(p)) => {
                    prop_assert!(before.token().is_none_or(|fence| p.token >= fence), "admitted below the fence");
                    prop_assert_eq!(p.token.generation(), before.generation);
                    if access != Access::CheckedRead
                        && let Some(next) = state.after(step, p, Timestamp(0))
                    {
                        prop_assert!(next.token() >= before.token(), "a fence fell");
                        prop_assert_eq!(next.token(), Some(p.token), "what was admitted is the fence");
                        state = next;
                    }
                    if access == Access::Write {
                        state.spent = true;
                    }
                }
                (Verdict::Admit(_), None) => prop_assert!(false, "admitted without a token"),
                (Verdict::Observe(_), _) => {
                    prop_assert_eq!(policy.mode, Mode::Observe);
                    prop_assert_eq!(&state, &before);
                }
                (Verdict::Refuse(reason), Some(p)) => {
                    prop_assert_eq!(policy.mode, Mode::Enforce);
                    prop_assert!(justified(reason, &before, p, access, &policy), "{:?} is not justified", reason);
                }
                (Verdict::Refuse(reason), None) => prop_assert_eq!(reason, Reason::MissingToken),
            }
        }
    }

    /// t29: a token refused as stale or retired in an older state is refused in every later one too.
    #[test]
    fn t29_stale_and_retired_are_final(
        first in any_presented(), history in prop::collection::vec(any_presented(), 0..20), late in any_presented(), rotations in 0u32..2,
    ) {
        let policy = Policy::default();
        let step = |state: FenceState, p: &Presented| match judge(&state, p, Access::Claim, &policy) {
            Verdict::Admit(step) => state.after(step, p, Timestamp(0)).unwrap_or(state),
            _ => state,
        };
        let old = step(FenceState::default(), &first);
        if let Verdict::Refuse(Reason::Stale | Reason::RetiredGeneration) = judge(&old, &late, Access::Write, &policy) {
            let mut state = history.iter().fold(old, step);
            if rotations > 0 {
                state = FenceState::unseen(state.generation + rotations);
            }
            prop_assert!(matches!(judge(&state, &late, Access::Write, &policy), Verdict::Refuse(_)));
        }
    }
}
