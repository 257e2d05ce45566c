//! A bare hyper server that reads the body and answers: an upper bound for any HTTP service here.

use std::convert::Infallible;
use std::process::Command;

use fencepost_gateway::bench::{Answered, Protocol, Workload};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;

use crate::gateway::load;
use crate::server::{Server, free_port};
use crate::{Outcome, Peer, RESOURCES, Timing, VALUE};
use fencepost_gateway::bench::Http;

pub(crate) struct Bare(Server);

impl Bare {
    pub(crate) fn start() -> Result<Bare, String> {
        let port = free_port()?;
        let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
        command.args(["bare", &format!("127.0.0.1:{port}")]);
        Ok(Bare(Server::start(command, port)?))
    }
}

/// Runs the server, in a process of its own, on as many threads as the gateway has.
pub(crate) fn serve(address: &str) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await.map_err(|error| error.to_string())?;
        let http = Builder::new(TokioExecutor::new());
        loop {
            let (stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
            let _ = stream.set_nodelay(true);
            let serving = http.serve_connection(TokioIo::new(stream), service_fn(answer)).into_owned();
            tokio::spawn(serving);
        }
    })
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await;
    let text: &[u8] = if body.is_ok() { b"ok" } else { b"broken" };
    Ok(Response::new(Full::new(Bytes::copy_from_slice(text))))
}

/// The same requests, accepting any answer.
struct AnyAnswer(Http);

impl Protocol for AnyAnswer {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.0.request(out);
    }

    fn answer(&mut self, input: &[u8]) -> Option<Answered> {
        self.0.answer(input).map(|_| Answered::Expected)
    }
}

impl Peer for Bare {
    fn name(&self) -> &'static str {
        "bare hyper"
    }

    fn offers(&self, workload: Workload) -> bool {
        !matches!(workload, Workload::Txn | Workload::Lock)
    }

    fn measure(&mut self, workload: Workload, connections: usize, time: Timing) -> Result<Outcome, String> {
        let speaker = |number| AnyAnswer(Http::new(workload, number, RESOURCES, VALUE, "bench/"));
        load(&[self.0.address], (0..connections as u64).map(speaker).collect(), time)
    }

    fn http(&self) -> Option<std::net::SocketAddr> {
        Some(self.0.address)
    }

    fn processes(&self) -> Vec<u32> {
        vec![self.0.process()]
    }
}
