//! An order service: each order is paid once, even if a worker pauses in the middle.
//!
//! ```sh
//! fencepost serve &
//! cargo run --release -p fencepost-client --example orders -- http://127.0.0.1:3362 fencepost://127.0.0.1:3362 123
//! ```

use fencepost_client::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [gateway, service, order] = arguments.as_slice() else {
        return Err("usage: orders GATEWAY LOCK-SERVICE ORDER".into());
    };
    let client = Client::builder().gateway_url(gateway).lock_service_url(service).connect().await?;
    let order = format!("orders/{order}");
    let guard = client.acquire(&order).await?;
    println!("{order}: token {}", guard.token());
    // Whatever was decided before the lock was ours may be outdated; what is read now is what will be written over.
    let state = match guard.get(&order).await? {
        Some(value) => String::from_utf8_lossy(&value.body).into_owned(),
        None => "new".to_owned(),
    };
    if state == "paid" {
        println!("{order}: already paid");
    } else {
        // A worker that paused here for longer than its lease is refused: the fence has moved on.
        guard.put(&order, "paid").await?;
        println!("{order}: {state} -> paid");
    }
    guard.release().await?;
    Ok(())
}
