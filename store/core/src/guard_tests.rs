use super::*;
use crate::{Claim, Equal};
use proptest::prelude::*;

fn guard(keys: &str, resource: &str) -> GuardSpec {
    GuardSpec { keys: keys.into(), resource: Some(resource.into()), policy: Policy::default(), engine: None }
}

fn strict(keys: &str, resource: &str) -> GuardSpec {
    GuardSpec { policy: Policy { claim: Claim::Required, ..Policy::default() }, ..guard(keys, resource) }
}

fn engine(name: &str) -> EngineName {
    EngineName::new(name).unwrap()
}

fn on(name: &str, spec: GuardSpec) -> GuardSpec {
    GuardSpec { engine: Some(engine(name)), ..spec }
}

fn resource_of(guards: &Guards, key: &str) -> String {
    guards.of_key(&Key::new(key).unwrap()).unwrap().resource.as_str().to_owned()
}

#[test]
fn without_guards_each_key_is_its_own_resource() {
    assert_eq!(resource_of(&Guards::default(), "orders/123/lines"), "orders/123/lines");
}

#[test]
fn one_lock_covers_many_keys() {
    let guards = Guards::new(vec![guard("orders/*/**", "orders/*")]).unwrap();
    assert_eq!(resource_of(&guards, "orders/123"), "orders/123");
    assert_eq!(resource_of(&guards, "orders/123/lines"), "orders/123");
    assert_eq!(resource_of(&guards, "orders/123/lines/4"), "orders/123");
    assert_eq!(resource_of(&guards, "orders"), "orders");
    assert_eq!(resource_of(&guards, "stock/7"), "stock/7");
    assert_eq!(
        guards.of_resource(&Resource::new("orders/123/lines").unwrap()).unwrap(),
        Err(Resource::new("orders/123").unwrap())
    );
    assert!(guards.of_resource(&Resource::new("orders/123").unwrap()).unwrap().is_ok());
}

#[test]
fn a_guard_maps_its_own_resource_name_to_itself() {
    let guards = Guards::new(vec![guard("stock/**", "warehouse"), guard("a/*/b/*", "ab/*")]).unwrap();
    assert_eq!(resource_of(&guards, "stock"), "warehouse");
    assert_eq!(resource_of(&guards, "stock/1/2"), "warehouse");
    assert_eq!(resource_of(&guards, "warehouse"), "warehouse");
    assert_eq!(resource_of(&guards, "a/1/b/2"), "ab/1");
    assert_eq!(resource_of(&guards, "ab/1"), "ab/1");
}

#[test]
fn each_key_by_itself_with_rules_of_its_own() {
    let spec = GuardSpec {
        keys: "photos/**".into(),
        resource: None,
        policy: Policy { equal: Equal::Reject, ..Policy::default() },
        engine: None,
    };
    let guards = Guards::new(vec![spec]).unwrap();
    let guarded = guards.of_key(&Key::new("photos/a/b").unwrap()).unwrap();
    assert_eq!(guarded.resource.as_str(), "photos/a/b");
    assert_eq!(guarded.policy.equal, Equal::Reject);
    let all = GuardSpec { resource: None, ..guard("**", "") };
    let all = Guards::new(vec![all]).unwrap();
    assert_eq!(resource_of(&all, "x/y"), "x/y");
}

#[test]
fn first_match_wins() {
    let guards = Guards::new(vec![guard("orders/vip/**", "vip"), guard("orders/*/**", "orders/*")]).unwrap();
    assert_eq!(resource_of(&guards, "orders/vip/1"), "vip");
    assert_eq!(resource_of(&guards, "orders/2/1"), "orders/2");
}

#[test]
fn a_resource_name_beyond_the_limit_is_an_error_of_the_key() {
    let guards = Guards::new(vec![guard("o/*", "a-longer-name/*")]).unwrap();
    let key = Key::new(&format!("o/{}", "x".repeat(1020))).unwrap();
    assert_eq!(guards.of_key(&key), Err(NameError::TooLong(1034)));
}

#[test]
fn malformed_patterns() {
    for (keys, resource) in [
        ("", "x"),
        ("a/**/b", "a"),
        ("a*", "a"),
        ("a//b", "a"),
        ("a/../b", "a"),
        ("a", ""),
        ("a", "*"),
        ("a/*", "*/*"),
        ("a/*", "a/**"),
        ("a/**", "**"),
        ("***", "a"),
    ] {
        let error = Guards::new(vec![guard(keys, resource)]);
        assert!(matches!(error, Err(GuardError::Pattern { guard: 1, .. })), "{keys} -> {resource}: {error:?}");
    }
}

#[test]
fn an_unreachable_guard_is_an_error() {
    let error = Guards::new(vec![guard("orders/**", "orders"), guard("orders/*/lines", "orders/*")]);
    assert!(matches!(error, Err(GuardError::Unreachable { guard: 2, .. })), "{error:?}");
}

#[test]
fn two_guards_that_yield_one_resource_must_agree() {
    let same = Guards::new(vec![guard("orders/*", "shop"), guard("stock/*", "shop")]);
    assert!(same.is_ok(), "{same:?}");
    let differ = Guards::new(vec![guard("orders/*", "shop"), strict("stock/*", "shop")]);
    assert!(matches!(differ, Err(GuardError::TwoPolicies { first: 1, second: 2, .. })), "{differ:?}");
    let crossing = Guards::new(vec![guard("a/*", "x/*"), strict("b/*/*", "*/y")]);
    assert!(crossing.is_err(), "{crossing:?}");
}

#[test]
fn a_resource_whose_own_name_leads_elsewhere_is_an_error() {
    let error = Guards::new(vec![guard("orders/vip", "vip"), guard("orders/*/**", "orders/*")]);
    assert!(matches!(error, Err(GuardError::Unstable { guard: 2, .. })), "{error:?}");
}

#[test]
fn a_resource_shorter_than_its_keys_is_checked_at_every_length() {
    let unstable = Guards::new(vec![guard("z/*/*/*", "w/*"), guard("p/q/r/**", "z/**")]);
    assert!(matches!(unstable, Err(GuardError::Unstable { guard: 2, .. })), "{unstable:?}");
    let own = |spec: GuardSpec| GuardSpec { resource: None, ..spec };
    let differ = Guards::new(vec![own(guard("z/*/*/*", "")), strict("p/q/r/**", "z/**")]);
    assert!(matches!(differ, Err(GuardError::TwoPolicies { first: 1, second: 2, .. })), "{differ:?}");
}

#[test]
fn a_guard_that_maps_nothing_is_an_error() {
    let error = Guards::new(vec![guard("a/*/**", "a/**")]);
    assert!(matches!(error, Err(GuardError::Pattern { guard: 1, .. })), "{error:?}");
}

#[test]
fn many_guards_with_many_wildcards_are_checked_quickly() {
    let started = std::time::Instant::now();
    let specs = (0..100).map(|n| guard(&format!("tenants/*/kind{n}/*/**"), &format!("tenants/*/kind{n}/*"))).collect();
    Guards::new(specs).unwrap();
    let specs = (0..30).map(|n| guard(&format!("l{n}/*/*/*/*/**"), &format!("l{n}/*"))).collect();
    Guards::new(specs).unwrap();
    // The check was once exponential. The bound is generous, so that slow machines pass.
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn t32_the_mapping_hash_covers_patterns_and_order_but_not_rules() {
    let mapping = |specs| Guards::new(specs).unwrap().mapping();
    let (a, b) = (|| guard("a/*", "a"), || guard("b/*", "b"));
    assert_eq!(mapping(vec![a()]), mapping(vec![strict("a/*", "a")]));
    assert_ne!(mapping(vec![a()]).hash, mapping(vec![]).hash);
    assert_ne!(mapping(vec![a(), b()]).hash, mapping(vec![b(), a()]).hash);
}

#[test]
fn a_store_judges_only_what_its_engine_keeps() {
    let guards = Guards::new(vec![on("b", guard("orders/*/**", "orders/*")), guard("stock/**", "stock")]).unwrap();
    let key = |name| Key::new(name).unwrap();
    assert_eq!(
        (guards.engine_of("orders/1/lines"), guards.engine_of("orders/1")),
        (Some(&engine("b")), Some(&engine("b")))
    );
    assert_eq!((guards.engine_of("stock/1"), guards.engine_of("else")), (None, None));
    assert_eq!(guards.of_key(&key("orders/1/lines")), Err(NameError::OnEngine(engine("b"))));
    assert!(guards.of_key(&key("stock/1")).is_ok() && guards.of_key(&key("else")).is_ok());
    let on_b = guards.of_engine(Some(&engine("b")));
    assert_eq!(resource_of(&on_b, "orders/1/lines"), "orders/1");
    for elsewhere in ["stock/1", "else"] {
        assert_eq!(on_b.of_key(&key(elsewhere)), Err(NameError::OnUnnamedEngine));
        assert!(on_b.of_resource(&Resource::new(elsewhere).unwrap()).is_err());
    }
}

#[test]
fn a_resource_is_on_one_engine() {
    let same = Guards::new(vec![on("b", guard("orders/*", "shop")), on("b", guard("stock/*", "shop"))]);
    assert!(same.is_ok(), "{same:?}");
    for other in [guard("stock/*", "shop"), on("c", guard("stock/*", "shop"))] {
        let differ = Guards::new(vec![on("b", guard("orders/*", "shop")), other]);
        assert!(matches!(differ, Err(GuardError::TwoEngines { first: 1, second: 2, .. })), "{differ:?}");
    }
}

#[test]
fn engines_that_may_keep_a_bucket_are_found() {
    let guards = |spec| Guards::new(vec![guard("a/*", "a/*"), on("b", spec)]).unwrap();
    let found = |guards: Guards, segment| guards.named_engine_under(segment).map(|(at, _)| at);
    assert_eq!(found(guards(guard("orders/*/**", "orders/*")), "orders"), Some(2));
    assert_eq!(found(guards(guard("orders/*/**", "orders/*")), "order"), None);
    assert_eq!(found(guards(guard("orders/*", "shop/*")), "shop"), Some(2), "its resources are names, too");
    assert_eq!(found(guards(guard("*/x", "*/x")), "any"), Some(2));
    assert_eq!(found(guards(guard("**", "**")), "any"), Some(2));
    assert_eq!(found(guards(guard("orders/*", "orders/*")), "a"), None);
}

/// Stores from before engines had names open as they are.
#[test]
fn t32_without_named_engines_the_mapping_is_what_it_was() {
    let mapping = Guards::new(vec![guard("orders/*/**", "orders/*"), guard("stock/**", "stock")]).unwrap().mapping();
    assert_eq!(mapping.text, "orders/*/** -> orders/*\nstock/** -> stock\n");
    let mut bytes = b"\0fencepost mapping 2\0".to_vec();
    for part in ["orders/*/**", "orders/*", "stock/**", "stock"] {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part.as_bytes());
    }
    assert_eq!(mapping.hash, <[u8; 32]>::from(Sha256::digest(bytes)));
}

#[test]
fn t32_the_mapping_covers_the_engine_of_each_guard_and_that_of_the_store() {
    let specs = |first: Option<&str>, second: Option<&str>| {
        let engines = [first, second].map(|name| name.map(engine));
        let specs = [guard("a/*", "a"), guard("c/*", "c")];
        let specs = specs.into_iter().zip(engines).map(|(spec, engine)| GuardSpec { engine, ..spec });
        Guards::new(specs.collect()).unwrap()
    };
    let all = [specs(None, None), specs(Some("b"), None), specs(None, Some("b")), specs(Some("b"), Some("d"))];
    let swapped =
        [specs(Some("d"), Some("b")), all[3].of_engine(Some(&engine("b"))), all[3].of_engine(Some(&engine("d")))];
    let mappings: Vec<Mapping> = all.iter().chain(&swapped).map(Guards::mapping).collect();
    for (at, mapping) in mappings.iter().enumerate() {
        for other in &mappings[..at] {
            assert!(mapping.hash != other.hash && mapping.text != other.text, "{mapping} and {other}");
            assert_eq!(mapping.compare(&other.hash), SameMapping::No);
        }
        assert_eq!(mapping.compare(&mapping.hash), SameMapping::Yes);
    }
    let described = all[1].of_engine(Some(&engine("b"))).mapping().to_string();
    assert_eq!(described, "[engine b], a/* -> a on engine b, c/* -> c on engine default");
    assert_eq!(engines_of_mapping(&all[1].mapping().text).into_iter().collect::<Vec<_>>(), ["b"]);
    assert!(engines_of_mapping(&all[0].mapping().text).is_empty());
    assert_eq!(all[1].mapping(), {
        let rules = Guards::new(vec![on("b", strict("a/*", "a")), guard("c/*", "c")]).unwrap();
        rules.mapping()
    });
}

fn pattern() -> impl Strategy<Value = String> {
    let segment = prop_oneof![Just("a"), Just("b"), Just("*")];
    (prop::collection::vec(segment, 1..5), any::<bool>()).prop_map(|(mut parts, rest)| {
        if rest {
            parts.push("**");
        }
        parts.join("/")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// For every accepted list of guards and every name: a resource is its own resource, under the same policy and on the
    /// same engine.
    #[test]
    fn resource_of_is_idempotent_and_keeps_the_policy(
        specs in prop::collection::vec((pattern(), pattern(), any::<bool>(), any::<bool>()), 1..4),
        names in prop::collection::vec(prop::collection::vec(prop_oneof![Just("a"), Just("b"), Just("c")], 1..8), 1..40),
    ) {
        let specs = specs.iter().map(|(keys, resource, is_strict, is_named)| {
            let spec = if *is_strict { strict(keys, resource) } else { guard(keys, resource) };
            GuardSpec { engine: is_named.then(|| engine("b")), ..spec }
        });
        let specs = specs.collect();
        if let Ok(guards) = Guards::new(specs) {
            for name in names {
                let key = Key::new(&name.join("/")).unwrap();
                let on = guards.engine_of(key.as_str());
                let guards = guards.of_engine(on);
                let guarded = guards.of_key(&key).unwrap();
                prop_assert_eq!(guards.engine_of(guarded.resource.as_str()), on);
                prop_assert_eq!(guards.of_resource(&guarded.resource).unwrap(), Ok(guarded));
            }
        }
    }
}
