//! Files, flags and what they come to.

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    let file = toml::from_str(text).map_err(|error| error.to_string())?;
    Config::merge(&Flags::default(), file).map_err(|error| error.to_string())
}

#[test]
fn the_example_of_the_design() {
    let config = parse(
        r#"
        listen = "127.0.0.1:4000"
        data   = "/tmp/x"
        [[guard]]
        keys     = "orders/*/**"
        resource = "orders/*"
        equal    = "reject"
        claim    = "required"
        mode     = "observe"
        issuer   = "required"
        max_jump = 1_000
        "#,
    )
    .unwrap();
    assert_eq!(config.listen, "127.0.0.1:4000");
    let policy = config.guards.list()[0].spec().policy;
    assert_eq!((policy.equal, policy.claim, policy.mode), (Equal::Reject, Claim::Required, Mode::Observe));
    assert_eq!((policy.issuer, policy.max_jump), (IssuerRule::Required, NonZeroU64::new(1000)));
}

#[test]
fn unknown_keys_and_bad_values_are_errors() {
    for (text, word) in [
        ("listn = 'x'", "listn"),
        ("[limits]\nmax_bodyy = 1", "max_bodyy"),
        ("[[guard]]\nkeys = 'a'\nequals = 'reject'", "equals"),
        ("[[guard]]\nkeys = 'a'\nequal = 'maybe'", "maybe"),
        ("[[guard]]\nkeys = 'a'\nmax_jump = 0", "nonzero"),
        ("[limits]\nmax_body = '4MB'", "4MB"),
        ("[limits]\nbody_timeout = '30'", "30"),
        ("engine = 'postgres'", "rocksdb, memory"),
        ("[limits]\nmax_connections = 0", "max_connections"),
        ("[limits]\nmax_connections = 9999999999999", "max_connections must be at most"),
        ("queue = 9999999999999", "queue must be at most"),
        ("[limits]\nheader_timeout = '0s'", "header_timeout"),
        ("[limits]\nmax_body = 0", "max_body"),
        ("[[guard]]\nkeys = 'a/**/b'\nresource = 'a'", "guard 1"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn flags_win_over_the_file() {
    let file = toml::from_str("listen = '127.0.0.1:1'\nqueue = 7\n[limits]\nmax_body = '1KiB'").unwrap();
    let flags = Flags { listen: Some("127.0.0.1:2".into()), ..Flags::default() };
    let config = Config::merge(&flags, file).unwrap();
    assert_eq!((config.listen.as_str(), config.store.queue, config.limits.body), ("127.0.0.1:2", 7, 1024));
}
