//! Leader election: one of many leads, and says so in a place that a deposed leader cannot write to.
//!
//! ```sh
//! cargo run --release -p fencepost-client --example leader -- http://127.0.0.1:3362 fencepost://127.0.0.1:3362 me 5
//! ```

use std::time::Duration;

use fencepost_client::{Client, Error, LockOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [gateway, service, name, beats] = arguments.as_slice() else {
        return Err("usage: leader GATEWAY LOCK-SERVICE NAME HOW-MANY-BEATS".into());
    };
    let beats: u32 = beats.parse()?;
    let options = LockOptions::new().name(name).ttl(Duration::from_secs(3)).wait(Duration::from_secs(60));
    let client =
        Client::builder().gateway_url(gateway).lock_service_url(service).lock_options(options).connect().await?;
    let led = client
        .lead("cluster/leader", |guard| async move {
            println!("{name} leads with token {}", guard.token());
            for beat in 1..=beats {
                guard.put("cluster/leader", format!("{name} beat {beat}")).await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok::<_, Error>(())
        })
        .await?;
    led?;
    println!("{name} steps down");
    Ok(())
}
