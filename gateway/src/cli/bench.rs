//! `fencepost bench`: load on a running gateway.

use std::net::ToSocketAddrs;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser};
use fencepost_client::WriteOptions;
use serde_json::json;

use super::connect::gateway_at;
use super::exit::Failed;
use crate::bench::{self, Http, Load, Measured, WORKLOADS, Workload};
use crate::quantity::{Size, Span};

/// The most connections that are opened.
const MAX_CONNECTIONS: u64 = 10_000;

#[derive(Args)]
pub(super) struct Bench {
    /// What to send; all if absent
    #[arg(value_parser = workloads())]
    workloads: Vec<String>,
    /// Write to this gateway: resources under the prefix get fences, which stay for good
    #[arg(long)]
    yes: bool,
    /// URL of the gateway
    #[arg(long, value_name = "URL", env = "FENCEPOST_URL", default_value = "http://127.0.0.1:3362")]
    url: String,
    /// Connections at once
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = RangedU64ValueParser::<u64>::new().range(1..=MAX_CONNECTIONS))]
    connections: u64,
    /// How long each workload is measured
    #[arg(long, value_name = "TIME", default_value = "5s")]
    duration: Span,
    /// How long each workload runs before it is measured
    #[arg(long, value_name = "TIME", default_value = "1s")]
    warm_up: Span,
    /// Resources to spread the load over
    #[arg(long, value_name = "COUNT", default_value = "10000", value_parser = RangedU64ValueParser::<u64>::new().range(1..=100_000_000))]
    resources: u64,
    /// Size of a value
    #[arg(long, value_name = "SIZE", default_value = "256")]
    value_size: Size,
    /// What the names of keys, resources and locks begin with
    #[arg(long, value_name = "PREFIX", default_value = "bench/")]
    prefix: String,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

fn workloads() -> PossibleValuesParser {
    let values = WORKLOADS.iter().map(|(_, name, what)| PossibleValue::new(*name).help(*what));
    PossibleValuesParser::new(values.collect::<Vec<_>>())
}

impl Bench {
    pub(super) fn run(self) -> Result<(), Failed> {
        if !self.yes {
            return Err(Failed::usage(format!(
                "this writes {} keys under `{}` to {}, and their fences stay for good; pass --yes if that is meant",
                self.resources, self.prefix, self.url
            )));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::other)?;
        runtime.block_on(self.measure())
    }

    async fn measure(&self) -> Result<(), Failed> {
        let place = self.url.strip_prefix("http://").ok_or_else(|| Failed::usage("only http:// is supported"))?;
        let address = place
            .trim_end_matches('/')
            .to_socket_addrs()
            .map_err(|error| Failed::usage(format!("{place}: {error}")))?;
        let address = address.into_iter().next().ok_or_else(|| Failed::usage(format!("{place} has no address")))?;
        self.fill().await?;
        if !self.json {
            super::print(&bench::heading())?;
        }
        let chosen: Vec<Workload> = match self.workloads.as_slice() {
            [] => WORKLOADS.iter().map(|(workload, ..)| *workload).collect(),
            names => names.iter().filter_map(|name| Workload::find(name)).collect(),
        };
        for workload in chosen {
            let value = usize::try_from(self.value_size.0).unwrap_or(usize::MAX);
            let speaker = |number| Http::new(workload, number, self.resources, value, &self.prefix);
            let load = Load { addresses: vec![address], warm_up: self.warm_up.0, duration: self.duration.0 };
            let measured =
                bench::run(load, (0..self.connections).map(speaker).collect()).await.map_err(Failed::other)?;
            match self.json {
                true => super::print(&as_json(workload, &measured))?,
                false => super::print(&bench::line(workload, &measured))?,
            }
        }
        Ok(())
    }

    /// Writes a value and a fence for every resource first, so that reads find a value and refusals have a reason.
    async fn fill(&self) -> Result<(), Failed> {
        let gateway = gateway_at(&self.url, Duration::from_secs(30))?;
        let value = usize::try_from(self.value_size.0).unwrap_or(usize::MAX);
        let options = WriteOptions::new().credentials(Http::credentials());
        let mut filling = tokio::task::JoinSet::new();
        for resource in 0..self.resources {
            while filling.len() >= 64 {
                finished(&mut filling).await?;
            }
            if resource > 0 && resource.is_multiple_of(100_000) {
                eprintln!("fencepost: {resource} of {} keys written", self.resources);
            }
            let key = fencepost_core::Key::new(&format!("{}{resource}", self.prefix)).map_err(Failed::usage)?;
            let value = Bytes::from(bench::text(resource, value));
            let (gateway, options) = (gateway.clone(), options.clone());
            filling.spawn(async move { gateway.put(&key, value, None, &options).await.map(drop) });
        }
        while !filling.is_empty() {
            finished(&mut filling).await?;
        }
        Ok(())
    }
}

async fn finished(filling: &mut tokio::task::JoinSet<Result<(), fencepost_client::Error>>) -> Result<(), Failed> {
    match filling.join_next().await {
        Some(written) => Ok(written.map_err(Failed::other)??),
        None => Ok(()),
    }
}

fn as_json(workload: Workload, measured: &Measured) -> String {
    json!({
        "workload": workload.name(),
        "connections": measured.connections,
        "seconds": measured.seconds,
        "answered": measured.answered,
        "unexpected": measured.unexpected,
        "per_second": measured.rate(),
        "p50_ms": measured.millis(0.5),
        "p99_ms": measured.millis(0.99),
        "p999_ms": measured.millis(0.999),
    })
    .to_string()
}
