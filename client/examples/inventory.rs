//! Selling from stock: the decrement and the receipt are one transaction under the lock's token.
//!
//! ```sh
//! cargo run --release -p fencepost-client --example inventory -- http://127.0.0.1:3362 fencepost://127.0.0.1:3362 apples 3
//! ```

use fencepost_client::{Client, ErrorKind};
use fencepost_core::wire::TxnRequest;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [gateway, service, item, wanted] = arguments.as_slice() else {
        return Err("usage: inventory GATEWAY LOCK-SERVICE ITEM HOW-MANY".into());
    };
    let wanted: u32 = wanted.parse()?;
    let client = Client::builder().gateway_url(gateway).lock_service_url(service).connect().await?;
    let stock = format!("stock/{item}");
    let sold = client
        .with_lock(&stock, async |guard| {
            // Never below nothing: the gateway refuses the whole transaction.
            let sale = format!(r#"{{"then": [{{"add": "{stock}", "by": -{wanted}, "min": 0}}]}}"#);
            let sale: TxnRequest = serde_json::from_str(&sale).map_err(|error| error.to_string())?;
            match guard.transact(sale).await {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
    match sold {
        Ok(Ok(true)) => println!("sold {wanted} {item}"),
        Ok(Ok(false)) => println!("not enough {item}"),
        Ok(Err(error)) => return Err(error.into()),
        Err(error) => match error.loss() {
            Some(why) => println!("nothing sold: {why}"),
            None => return Err(error.into()),
        },
    }
    Ok(())
}
