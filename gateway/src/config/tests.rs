//! Configuration from files and flags.

use std::num::NonZeroU64;

use fencepost_core::{Claim, Equal, IssuerRule, Mode};
use fencepost_store::engines::ENGINES;

use super::*;
use crate::s3::options::Read;

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
        ("engine = 'consul'", "memory"),
        ("[limits]\nmax_connections = 0", "max_connections"),
        ("[limits]\nmax_connections = 9999999999999", "max_connections must be at most"),
        ("queue = 9999999999999", "queue must be at most"),
        ("[limits]\nheader_timeout = '0s'", "header_timeout"),
        ("[limits]\nidle_timeout = '0s'", "idle_timeout"),
        ("[limits]\nmax_connections_per_peer = 0", "max_connections_per_peer"),
        ("[limits]\nmax_body = 0", "max_body"),
        ("[[guard]]\nkeys = 'a/**/b'\nresource = 'a'", "guard 1"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn hosts_are_names_or_addresses_without_ports() {
    assert!(parse("").unwrap().hosts.is_empty());
    let config = parse("hosts = ['Files.example', '10.0.0.7']").unwrap();
    assert!(config.to_string().contains("hosts            files.example, 10.0.0.7\n"), "{config}");
    let flags = Flags { hosts: Some(vec!["other".parse().unwrap()]), ..Flags::default() };
    let merged = Config::merge(&flags, toml::from_str("hosts = ['files.example']").unwrap()).unwrap();
    assert_eq!(merged.hosts, ["other".parse().unwrap()]);
    for bad in ["files.example:3362", "*.example", ""] {
        let error = parse(&format!("hosts = ['{bad}']")).expect_err(bad);
        assert!(error.contains("without a port"), "{error}");
    }
}

#[test]
fn s12_a_peer_has_a_quarter_of_the_connections_unless_set() {
    let of = |text: &str| parse(text).unwrap().limits.public_bounds();
    assert_eq!((of("").per_peer, of("").binds_local), (1024, false));
    let set = of("[limits]\nmax_connections = 10\nmax_connections_per_peer = 3");
    assert_eq!((set.connections, set.per_peer, set.binds_local), (10, 3, true));
    assert_eq!(of("[limits]\nmax_connections = 2").per_peer, 1);
    let shown = parse("[limits]\nmax_connections_per_peer = 3\nidle_timeout = '5s'").unwrap().to_string();
    assert!(shown.contains("max_connections_per_peer 3\n") && shown.contains("idle_timeout     5s\n"), "{shown}");
}

#[test]
fn flags_win_over_the_file() {
    let file = toml::from_str("listen = '127.0.0.1:1'\nqueue = 7\n[limits]\nmax_body = '1KiB'").unwrap();
    let flags = Flags { listen: Some("127.0.0.1:2".into()), ..Flags::default() };
    let config = Config::merge(&flags, file).unwrap();
    assert_eq!((config.listen.as_str(), config.store.queue, config.limits.body), ("127.0.0.1:2", 7, 1024));
}

/// A file of a secret, and its path.
fn secret_file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    crate::credentials::secret_file::make(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

#[test]
fn the_s3_face_is_off_unless_it_is_asked_for() {
    let settings = parse("").unwrap().s3;
    assert_eq!((settings.front_end, settings.create_buckets), (None, false));
    assert_eq!(settings.credentials_max_ttl, Duration::from_secs(12 * 3600));
    assert_eq!(settings.upload_retention, Duration::from_secs(7 * 24 * 3600));
    let front_end = parse("[s3]\nlisten = '127.0.0.1:9000'\nobjects = 'dir:/srv/files'").unwrap().s3.front_end.unwrap();
    assert_eq!(
        (front_end.listen.as_str(), front_end.objects),
        ("127.0.0.1:9000", Objects::Directory("/srv/files".into()))
    );
    let file = toml::from_str("[s3]\nlisten = '127.0.0.1:9000'\ncreate_buckets = true").unwrap();
    let s3 = S3Flags { objects: Some("dir:x".parse().unwrap()), s3_create_buckets: Some(false), ..S3Flags::default() };
    let merged = Config::merge(&Flags { s3, ..Flags::default() }, file).unwrap().s3;
    assert_eq!((merged.front_end.is_some(), merged.create_buckets), (true, false), "flags and file come together");
}

#[test]
fn s10_s19_settings_of_the_s3_listener_come_from_flags_and_file() {
    let settings = parse("").unwrap().s3;
    assert_eq!((settings.insecure_plaintext, settings.read), (false, Read::All));
    let text = "[s3]\ninsecure_plaintext = true\nread = 'own'";
    let settings = parse(text).unwrap().s3;
    assert_eq!((settings.insecure_plaintext, settings.read), (true, Read::Own));
    let shown = settings.to_string();
    assert!(shown.contains("s3.insecure_plaintext true\n") && shown.contains("s3.read          own\n"), "{shown}");
    let s3 = S3Flags { s3_insecure_plaintext: Some(false), s3_read: Some(Read::All), ..S3Flags::default() };
    let merged = Config::merge(&Flags { s3, ..Flags::default() }, toml::from_str(text).unwrap()).unwrap().s3;
    assert_eq!((merged.insecure_plaintext, merged.read), (false, Read::All), "flags come first");
    assert!(parse("[s3]\nread = 'some'").is_err());
}

#[test]
fn keys_of_the_s3_face_come_from_files_or_the_configuration() {
    let (_mac, mac) = secret_file(&"0f".repeat(32));
    let (_other, other) = secret_file(&"0e".repeat(32));
    let (_secret, secret) = secret_file("0123456789abcdef\n");
    let config = parse(&format!(
        "[s3]\nmac_keys = [{{ id = 2, key_file = '{mac}' }}, {{ id = 1, key_file = '{other}' }}]\n\
         [[s3.key]]\naccess_key_id = 'reader'\nsecret_access_key_file = '{secret}'\n\
         [[s3.key]]\naccess_key_id = 'other'\nsecret_access_key = 'fedcba9876543210'\n"
    ))
    .unwrap();
    let shown = config.to_string();
    assert!(shown.contains("s3.mac_keys      2, 1\n") && shown.contains("s3.key           reader, other\n"), "{shown}");
    let ring = config.s3.keyring(std::path::Path::new("/nowhere")).unwrap();
    assert!(ring.signer("reader").is_ok() && ring.signer("other").is_ok());
    let everything = format!("{config:?} {shown}");
    assert!(!everything.contains("0123456789abcdef") && !everything.contains("fedcba9876543210"));
    assert!(!everything.contains("0f0f") && !everything.contains("15, 15"));
}

#[test]
fn an_s3_face_that_cannot_be() {
    let (_short, short) = secret_file("0f0f");
    let (_open, open) = secret_file(&"0f".repeat(32));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&open, mode).unwrap();
    let readers = "[[s3.key]]\naccess_key_id = 'reader'\n";
    for (text, word) in [
        ("[s3]\nlisten = '127.0.0.1:1'", "give --objects"),
        ("[s3]\nobjects = 'dir:x'", "give --s3-listen"),
        ("[s3]\nlisten = 'x'\nobjects = 's3://bucket'", "`s3://bucket` is no place for objects: write dir:PATH"),
        ("[s3]\nlisten = 'x'\nobjects = 'dir:'", "names no directory"),
        ("[s3]\nlisten = 'x'\nobjects = '/srv'", "write dir:PATH"),
        ("[s3]\nendpoint = 'files.example'", "files.example"),
        ("[s3]\nendpoint = 'http://files.example/path'", "without a path"),
        ("[s3]\nendpoint = 'ftp://files.example'", "ftp://"),
        ("[s3]\nupload_retention = '0s'", "upload_retention must be at least 1s"),
        ("[s3]\ncredentials_max_ttl = '0s'", "credentials_max_ttl must be at least 1s"),
        ("[s3]\ncredentials_max_ttl = '169h'", "credentials_max_ttl must be at most 168h"),
        ("[s3]\nmac_keys = []", "no MAC key"),
        ("[s3]\nmac_keys = [{ id = 256, key_file = 'x' }]", "256"),
        ("[s3]\nmac_keys = [{ id = 1 }]", "key_file"),
        ("[s3]\nmac_keys = [{ id = 1, key_file = '/nowhere/x' }]", "/nowhere/x"),
        (&format!("[s3]\nmac_keys = [{{ id = 1, key_file = '{short}' }}]"), "MAC key 1 has 2 bytes"),
        (&format!("[s3]\nmac_keys = [{{ id = 1, key_file = '{open}' }}]"), "chmod 600"),
        (readers, "secret_access_key_file"),
        (&format!("{readers}secret_access_key = 'x'"), "16 to 128"),
        (&format!("{readers}secret_access_key_file = '{open}'"), "chmod 600"),
        (&format!("{readers}secret_access_key = '0123456789abcdef'\nsecret_access_key_file = 'y'"), "either"),
        ("[s3]\nlisten_on = 'x'", "listen_on"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn s16_a_file_with_a_secret_in_it_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fencepost.toml");
    let flags = Flags { config: Some(path.clone()), ..Flags::default() };
    let load = |text: &str, mode: u32| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Config::load(&flags)
    };
    let inline = "[[s3.key]]\naccess_key_id = 'reader'\nsecret_access_key = '0123456789abcdef'\n";
    for mode in [0o644, 0o640, 0o620, 0o604] {
        let error = load(inline, mode).unwrap_err().to_string();
        let advice = format!("run `chmod 600 {}`", path.display());
        assert!(error.contains(&format!("mode {mode:03o}")) && error.contains(&advice), "{error}");
        assert!(!error.contains("0123456789abcdef"), "{error}");
    }
    assert!(load(inline, 0o600).is_ok() && load(inline, 0o400).is_ok());
    assert!(load("listen = '127.0.0.1:1'\n", 0o644).is_ok(), "without a secret any mode will do");
}

#[test]
fn the_position_of_the_store_is_noted_where_flag_or_file_say() {
    use crate::position_file::StateDir;
    assert_eq!(parse("").unwrap().state_dir, StateDir::User);
    let file = parse("state_dir = '/var/lib/x'").unwrap();
    assert_eq!(file.state_dir, StateDir::At("/var/lib/x".into()));
    assert!(file.to_string().contains("state_dir        /var/lib/x\n"), "{file}");
    let flags = Flags { state_dir: Some(StateDir::Off), ..Flags::default() };
    let merged = Config::merge(&flags, toml::from_str("state_dir = '/var/lib/x'").unwrap()).unwrap();
    assert_eq!(merged.state_dir, StateDir::Off);
    assert!(parse("state_dir = ''").unwrap_err().contains("state_dir"));
}

#[test]
fn an_unknown_engine_is_answered_with_those_of_this_build() {
    for (engine, name) in [("consul", "consul"), ("consul://bob:hunter2@h:8500", "consul")] {
        let error = parse(&format!("engine = '{engine}'")).unwrap_err();
        assert!(error.contains(&format!("there is no engine `{name}`; choose one of: ")), "{error}");
        for kind in ENGINES {
            assert!(error.contains(kind.written), "{error} lacks {}", kind.written);
        }
        assert!(!error.contains("hunter2"), "{error}");
    }
    for engine in ["bob:hunter2@h/db", "hunter2@h/db", "hunter 2@", "rocksdb:hunter2"] {
        let error = parse(&format!("engine = '{engine}'")).unwrap_err();
        assert!(error.contains("neither a name nor the URL") && error.contains("memory"), "{error}");
        assert!(!error.contains("hunter") && !error.contains("bob"), "{error}");
    }
}

/// The flags of a command line.
fn flags(arguments: &[&str]) -> Flags {
    let command = <Flags as clap::Args>::augment_args(clap::Command::new("fencepost").no_binary_name(true));
    <Flags as clap::FromArgMatches>::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
}

#[test]
fn the_flag_of_the_engine_has_a_variable_whose_value_is_not_shown_and_help_for_every_engine() {
    let command = <Flags as clap::Args>::augment_args(clap::Command::new("fencepost"));
    let engine = command.get_arguments().find(|argument| argument.get_id() == "engine").unwrap();
    assert_eq!(engine.get_env().unwrap(), "FENCEPOST_ENGINE");
    assert!(engine.is_hide_env_values_set());
    let help = engine.get_long_help().unwrap().to_string();
    for kind in ENGINES {
        assert!(help.contains(&format!("- {}: {}", kind.name, kind.summary)), "{help}");
    }
    let named = Config::merge(&flags(&["--engine", "memory"]), File::default()).unwrap();
    assert_eq!(named.engine.kind().name, "memory");
    assert!(matches!(named.place_of(&named.engine), Place::Directory(path) if path == named.data));
}

#[test]
#[cfg(feature = "postgres")]
fn an_engine_on_a_server_is_named_by_its_url() {
    let url = "postgres://bob:hunter2@db:5432/app?schema=orders&sslmode=require&password=hunter2";
    let shown = "postgres://bob:…@db:5432/app?schema=orders";
    let given = flags(&["--engine", url]);
    assert!(!format!("{given:?}").contains("hunter2"), "{given:?}");
    let by_flag = Config::merge(&given, toml::from_str("engine = 'memory'").unwrap()).unwrap();
    let by_file = parse(&format!("engine = '{url}'")).unwrap();
    for config in [by_flag, by_file] {
        assert_eq!((config.engine.kind().name, config.engine.to_string()), ("postgres", shown.to_owned()));
        let Place::Server(server) = config.place_of(&config.engine) else { panic!("{config:?}") };
        assert_eq!(server.text, url, "the engine gets all of it");
        assert!(config.to_string().contains(&format!("engine           {shown}\n")), "{config}");
        assert!(!format!("{config} {config:?}").contains("hunter2"), "{config:?}");
    }
    let other = parse("engine = 'postgresql://db/app'").unwrap();
    assert_eq!((other.engine.kind().name, other.engine.to_string()), ("postgres", "postgresql://db/app".to_owned()));
}

#[test]
#[cfg(feature = "etcd")]
fn the_engine_etcd_is_named_by_its_members() {
    for (url, shown) in [
        ("etcd://bob:hunter2@a:2379,b/orders?max_ops=256", "etcd://bob:…@a:2379,b/orders"),
        ("etcds://a,b,c/orders?ca=/etc/etcd/ca.pem", "etcds://a,b,c/orders"),
    ] {
        let config = parse(&format!("engine = '{url}'")).unwrap();
        assert_eq!((config.engine.kind().name, config.engine.to_string()), ("etcd", shown.to_owned()));
        let Place::Server(server) = config.place_of(&config.engine) else { panic!("{config:?}") };
        assert_eq!(server.text, url, "the engine gets all of it");
    }
    let error = parse("engine = 'etcd'").unwrap_err();
    assert!(error.contains("`etcd://host:port,host:port/prefix`"), "{error}");
}

#[test]
#[cfg(feature = "postgres")]
fn an_engine_on_a_server_needs_its_url() {
    let error = parse("engine = 'postgres'").unwrap_err();
    assert!(error.contains("`postgres://user@host:port/database`") && error.contains("FENCEPOST_ENGINE"), "{error}");
    let error = parse("engine = 'postgres://bob:hun/ter2@db/app'").unwrap_err();
    assert!(error.contains("%2F") && !error.contains("ter2"), "{error}");
}

#[test]
#[cfg(feature = "postgres")]
fn s16_a_file_with_the_password_of_an_engine_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fencepost.toml");
    let load = |engine: &str, mode: u32| {
        std::fs::write(&path, format!("engine = '{engine}'\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Config::load(&Flags { config: Some(path.clone()), ..Flags::default() }).map_err(|error| error.to_string())
    };
    for engine in ["postgres://bob:hunter2@db/app", "postgres://bob@db/app?password=hunter2"] {
        let error = load(engine, 0o644).unwrap_err();
        assert!(error.contains(&format!("chmod 600 {}", path.display())) && !error.contains("hunter2"), "{error}");
        assert!(load(engine, 0o600).is_ok());
    }
    for engine in ["postgres://bob@db/app", "memory"] {
        assert!(load(engine, 0o644).is_ok(), "without a password any mode will do");
    }
    let named = "memory'\n[engines]\nb = 'postgres://bob:hunter2@db/app'\n[[guard]]\nkeys = 'b/*'\nengine = 'b";
    let error = load(named, 0o644).unwrap_err();
    assert!(error.contains("chmod 600") && !error.contains("hunter2"), "{error}");
    assert!(load(named, 0o600).is_ok());
}

#[test]
#[cfg(not(feature = "rocksdb"))]
fn a_build_without_the_default_engine_does_not_fall_back_to_memory() {
    let error = parse("").unwrap_err();
    assert!(error.contains("built without the engine `rocksdb`") && error.contains("--engine memory"), "{error}");
}
