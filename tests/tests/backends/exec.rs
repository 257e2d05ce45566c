//! A token from any program.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_client::Client;
use fencepost_client::locks::{self, Acquired, Kept, Lifted, LockBackend, LockError, Wanted};
use fencepost_conformance::wait;
use fencepost_harness::fresh::Fresh;
use tempfile::TempDir;

use crate::suite::{connect, holder, played, resource};

/// `echo $FENCEPOST_GENERATION:$((FENCEPOST_FLOOR+1))`
const COUNTS: &str = "exec:sh?arg=-c&arg=echo%20%24FENCEPOST_GENERATION:%24%28%28FENCEPOST_FLOOR%2B1%29%29";

/// `exec:sh`, with a script as its argument.
async fn script(text: &str) -> Arc<dyn LockBackend> {
    let escaped: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
    connect(&format!("exec:sh?arg=-c&arg={escaped}")).await
}

async fn run(text: &str, wait: Duration) -> Result<Acquired, LockError> {
    let (name, who) = (resource("orders/1"), holder("a#9f2c"));
    let wanted = Wanted { name: &name, holder: &who, ttl: Duration::from_secs(30), wait, floor: 33, generation: 0 };
    script(text).await.acquire(&wanted).await
}

async fn failure(text: &str) -> String {
    match run(text, Duration::ZERO).await {
        Err(LockError::Failed { service, why }) if service == "exec:sh" => why,
        other => panic!("{text}: {other:?}"),
    }
}

#[tokio::test]
async fn a_program_prints_the_number() {
    let asks = r#"test "$FENCEPOST_RESOURCE $FENCEPOST_HOLDER $FENCEPOST_TTL_MS $FENCEPOST_WAIT_MS" = "orders/1 a#9f2c 30000 0" &&
        echo $((FENCEPOST_FLOOR + 1)) && echo more"#;
    let Ok(Acquired::Held(mut lease)) = run(asks, Duration::ZERO).await else { panic!("no lease") };
    assert_eq!((lease.number.get(), lease.issuer.as_str()), (34, "exec:caller"));
    assert_eq!(lease.holder, holder("a#9f2c"));
    let backend = script("exit 1").await;
    assert_eq!(backend.verify(&lease).await, Ok(Kept::Kept));
    assert_eq!(backend.renew(&lease).await, Ok(Kept::Kept));
    assert_eq!(backend.lift(&mut lease, 100).await, Ok(Lifted::Unsupported));
    assert_eq!(backend.release(lease).await, Ok(()));
    let Ok(Acquired::Held(lease)) = run("echo 35 redis:9f2c", Duration::ZERO).await else { panic!("no lease") };
    assert_eq!((lease.number.get(), lease.generation, lease.issuer.as_str()), (35, Some(0), "redis:9f2c"));
    for (text, generation) in [("echo 2:35", 2), ("echo 0:35", 0), ("echo $FENCEPOST_GENERATION:35", 0)] {
        let Ok(Acquired::Held(lease)) = run(text, Duration::ZERO).await else { panic!("{text}: no lease") };
        assert_eq!((lease.number.get(), lease.generation), (35, Some(generation)), "{text}");
    }
}

#[tokio::test]
async fn exit_codes_mean_something() {
    assert!(matches!(run("echo 34; exit 8", Duration::ZERO).await, Ok(Acquired::Busy)));
    let said = failure("echo 34; echo no such table >&2; exit 3").await;
    assert!(said.contains("3") && said.contains("no such table"), "{said}");
    let said = failure("kill -9 $$").await;
    assert!(said.contains("signal: 9") && said.contains("nothing on stderr"), "{said}");
    let said = failure("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1").await;
    assert!(said.len() < 5000, "{} bytes of stderr", said.len());
}

#[tokio::test]
async fn bad_output_is_named() {
    for (text, why) in [
        ("true", "empty"),
        ("echo; echo 34", "empty"),
        ("echo 0", "`0`"),
        ("echo -1", "`-1`"),
        ("echo thirty-four", "`thirty-four`"),
        ("echo 0:0:34", "`0:0:34`"),
        ("echo 0:2:34", "`0:2:34`"),
        ("echo 18446744073709551616", "`18446744073709551616`"),
        ("printf '34 \\001'", "issuer"),
    ] {
        let said = failure(text).await;
        assert!(said.contains(why), "{text}: {said}");
    }
}

#[tokio::test]
async fn a_program_that_does_not_end_is_killed_with_all_it_started() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("pids");
    let text = format!("sleep 600 & echo $! $$ > {}; sleep 600", file.display());
    let since = Instant::now();
    let error = run(&text, Duration::from_secs(1)).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("killed"), "{error}");
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    gone(&std::fs::read_to_string(&file).unwrap());
}

#[tokio::test]
async fn a_dropped_acquisition_is_killed_too() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("pids");
    let text = format!("sleep 600 & echo $! $$ > {}; sleep 600", file.display());
    let running = tokio::spawn(async move { run(&text, Duration::from_secs(600)).await.is_ok() });
    let complete = || std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'));
    crate::suite::until("the program to run", complete).await;
    running.abort();
    assert!(running.await.is_err());
    gone(&std::fs::read_to_string(&file).unwrap());
}

/// Waits until none of these processes runs any more.
fn gone(pids: &str) {
    assert_eq!(pids.split_whitespace().count(), 2, "{pids}");
    for pid in pids.split_whitespace() {
        wait::until("a killed process to end", Duration::from_secs(20), || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            (status.is_empty() || status.contains(") Z ")).then_some(())
        });
    }
}

#[tokio::test]
async fn what_it_leaves_behind_keeps_nobody_waiting() {
    let since = Instant::now();
    // The background process keeps our pipe open as long as it runs.
    let Ok(Acquired::Held(lease)) = run("sleep 20 & echo 34", Duration::ZERO).await else { panic!("no lease") };
    assert_eq!(lease.number.get(), 34);
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
}

#[tokio::test]
async fn wrong_urls_say_what_is_wrong() {
    for (url, why) in [("exec:", "no program"), ("exec:?arg=a", "no program"), ("exec:sh?args=a", "`args`")] {
        let Err(LockError::Invalid(said)) = locks::connect(url).await else { panic!("{url} was taken") };
        assert!(said.contains(why), "{url}: {said}");
    }
    let (name, who) = (resource("orders/1"), holder("a#1"));
    let wanted = Wanted {
        name: &name,
        holder: &who,
        ttl: Duration::from_secs(1),
        wait: Duration::ZERO,
        floor: 0,
        generation: 0,
    };
    for url in ["exec:/no/such/program", "exec:///no/such/program"] {
        let error = connect(url).await.acquire(&wanted).await.unwrap_err().to_string();
        assert!(error.starts_with("exec:/no/such/program: it cannot be started"), "{error}");
    }
}

#[tokio::test]
async fn its_numbers_fence() {
    let gateway = Fresh::memory(&[]);
    let locks = Client::builder().gateway_url(gateway.url()).lock_service_url(COUNTS).connect().await.unwrap();
    let first = locks.acquire("orders/1").await.unwrap();
    let second = locks.acquire("orders/1").await.unwrap();
    assert!(second.token() > first.token());
    second.put("orders/1", "new").await.unwrap();
    assert!(first.put("orders/1", "old").await.is_err());
    assert_eq!(second.get("orders/1").await.unwrap().unwrap().body, "new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zombie_is_refused() {
    let gateway = Fresh::memory(&[]);
    let ttl = Duration::from_secs(30);
    let (code, said, value) = tokio::task::block_in_place(|| played(&gateway, [COUNTS; 2], ttl, None));
    assert_eq!((code, value.as_str()), (Some(3), "new"), "{said}");
    assert!(said.contains("stale"), "{said}");
}
