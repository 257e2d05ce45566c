//! Arguments of every command that calls a gateway.

use std::future::Future;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use fencepost_client::{Credentials, Error, Gateway, GatewayOptions};
use fencepost_core::wire::MAX_PAGE;
use fencepost_core::{Holder, IdempotencyKey, Issuer, Token};
use serde::Serialize;

use super::exit::{self, Failed};
use crate::quantity::Span;

/// Where the gateway is.
#[derive(Args, Clone)]
pub(super) struct Connect {
    /// URL of the gateway
    #[arg(long, value_name = "URL", env = "FENCEPOST_URL", default_value = "http://127.0.0.1:3362")]
    url: String,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: Span,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl Connect {
    pub(super) fn gateway(&self) -> Result<Gateway, Failed> {
        if self.timeout.0.is_zero() {
            return Err(Failed::usage("--timeout must be longer than 0"));
        }
        gateway_at(&self.url, self.timeout.0)
    }

    /// Makes one call and waits for it.
    pub(super) fn call<T, F: Future<Output = Result<T, Error>>>(
        &self,
        call: impl FnOnce(Gateway) -> F,
    ) -> Result<T, Failed> {
        let gateway = self.gateway()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::other)?;
        Ok(runtime.block_on(call(gateway))?)
    }
}

/// The gateway at a URL, with one timeout for the connection and for the call.
pub(super) fn gateway_at(url: &str, timeout: Duration) -> Result<Gateway, Failed> {
    let options = GatewayOptions::new().timeout(timeout).connect_timeout(timeout);
    Gateway::with_options(url, options).map_err(Failed::usage)
}

/// The token, and who presents it.
#[derive(Args, Clone)]
pub(super) struct TokenArgs {
    /// Fencing token your lock service handed out, such as 34 or 2:34
    #[arg(long, value_name = "TOKEN", env = "FENCEPOST_TOKEN")]
    token: Option<Token>,
    /// Who presents the token, unique per acquisition
    #[arg(long, value_name = "NAME#NONCE", env = "FENCEPOST_HOLDER", value_parser = Holder::new)]
    holder: Option<Holder>,
    /// Which lock service numbered the token
    #[arg(long, value_name = "KIND:INCARNATION", env = "FENCEPOST_ISSUER", value_parser = Issuer::new)]
    issuer: Option<Issuer>,
}

impl TokenArgs {
    pub(super) fn credentials(self) -> Option<Credentials> {
        let TokenArgs { token, holder, issuer } = self;
        token.map(|token| Credentials { token, holder, issuer })
    }
}

/// What makes a retry safe.
#[derive(Args, Clone)]
pub(super) struct OnceArgs {
    /// Names this request over all its retries, so that it is applied at most once
    #[arg(long, value_name = "KEY", value_parser = IdempotencyKey::new)]
    idempotency_key: Option<IdempotencyKey>,
}

impl OnceArgs {
    pub(super) fn key(self) -> Option<IdempotencyKey> {
        self.idempotency_key
    }
}

/// The bytes of a file, or of standard input.
pub(super) fn input(file: Option<PathBuf>) -> Result<Vec<u8>, Failed> {
    match file {
        Some(path) => {
            std::fs::read(&path).map_err(|error| Failed::usage(format!("cannot read {}: {error}", path.display())))
        }
        None => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map_err(Failed::other)?;
            Ok(bytes)
        }
    }
}

/// Which page of a list.
#[derive(Args, Clone)]
pub(super) struct ListArgs {
    /// Only names that start with this
    #[arg(default_value = "")]
    pub(super) prefix: String,
    /// Start after this name
    #[arg(long, value_name = "NAME")]
    pub(super) after: Option<String>,
    /// At most this many
    #[arg(long, value_name = "COUNT", default_value = "100", value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_PAGE as u64))]
    pub(super) limit: usize,
    #[command(flatten)]
    pub(super) connect: Connect,
}

impl ListArgs {
    /// Prints a page, and reports on standard error how to get the next one.
    pub(super) fn print<T: Serialize>(&self, page: &T, lines: &str, next: Option<&str>) -> Result<(), Failed> {
        if self.connect.json {
            return super::print(&serde_json::to_string(page).map_err(Failed::other)?);
        }
        exit::write_text(lines)?;
        if let Some(next) = next {
            exit::note(&format!("there are more; go on with --after '{next}'"));
        }
        Ok(())
    }
}
