//! The HTTP front end. `Gateway::handle` is the life of a request, top to bottom.

mod answer;
mod audit;
mod body;
mod caller;
mod calls;
mod fingerprint;
mod front_end;
mod headers;
mod openapi;
mod origin;
mod permit;
mod problem;
mod query;
mod routes;
mod store_problem;
mod waiters;
mod wording;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use fencepost_objects::Objects;
use fencepost_store::Stores;
use http_body_util::Full;
use hyper::{Method, Request, Response};
use tokio::sync::Semaphore;

use crate::config::Limits;
use crate::credentials::S3Credentials;
use crate::listener::Arriving;
use crate::metrics::Metrics;
use crate::opened_stores;
use crate::peer::PeerAddress;
use crate::reload::Reload;
use body::ByteBudget;
use caller::Caller;
use origin::Hosts;
use problem::Problem;
use waiters::WaitingConnections;

pub use audit::AuditLog;
#[cfg(test)]
pub(crate) use calls::ROUTES;
pub(crate) use front_end::{Administrators, MAX_STREAMS, Public};
pub use origin::{Host, NotAHost};

/// The body of every answer.
pub type Body = Full<Bytes>;

/// The most requests at once whose answers hold values. More would not fit into one batch anyway.
const MAX_MAKERS: usize = 1024;

/// Answers requests from the stores of its engines.
pub struct Gateway {
    stores: Arc<Stores>,
    limits: Limits,
    hosts: Hosts,
    metrics: Arc<Metrics>,
    reload: Reload,
    audit: AuditLog,
    /// Credentials of the S3 front end, if there is one.
    s3: Option<Arc<S3Credentials>>,
    /// Objects that the S3 front end serves.
    objects: Option<Arc<Objects>>,
    bodies: Arc<ByteBudget>,
    answers: Arc<ByteBudget>,
    /// Limits the requests whose answers hold values and must be sent: as many as fit the budget if all are of the
    /// largest size.
    makers: Semaphore,
    /// Connections with requests that wait for a lock.
    waiting: WaitingConnections,
    draining: AtomicBool,
    requests: AtomicU64,
    run: String,
}

impl Gateway {
    /// A gateway over open stores. `metrics` should be their observer too.
    pub fn new(stores: Arc<Stores>, limits: Limits, metrics: Arc<Metrics>, reload: Reload, audit: AuditLog) -> Gateway {
        let mut run = [0; 4];
        // The count distinguishes requests of one run. The run's part only has to differ in most cases, so a failure is
        // ignored.
        let _ = getrandom::fill(&mut run);
        Gateway {
            stores,
            bodies: ByteBudget::new(limits.bodies),
            answers: ByteBudget::new(limits.bodies),
            waiting: WaitingConnections::of(limits.connections),
            makers: Semaphore::new((limits.bodies / limits.body.max(1)).clamp(1, MAX_MAKERS)),
            limits,
            hosts: Hosts::new(&[], Ipv4Addr::LOCALHOST.into()),
            metrics,
            reload,
            audit,
            s3: None,
            objects: None,
            draining: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            run: format!("{:08x}", u32::from_le_bytes(run)),
        }
    }

    /// The same, issuing credentials for an S3 front end on these objects.
    pub fn with_s3(self, credentials: Arc<S3Credentials>, objects: Arc<Objects>) -> Gateway {
        Gateway { s3: Some(credentials), objects: Some(objects), ..self }
    }

    /// The same, for a listener at this address that is also known by these hosts.
    pub fn answering_for(self, hosts: &[Host], listens_on: IpAddr) -> Gateway {
        Gateway { hosts: Hosts::new(hosts, listens_on), ..self }
    }

    /// The life of a request.
    async fn handle(&self, request: Request<Arriving>, caller: &Caller) -> Result<Response<Body>, Infallible> {
        let id = self.next_id();
        let method = request.method().clone();
        let keyed = headers::has_idempotency_key(request.headers());
        let answer = self.pipeline(request, caller, &id).await;
        let answer = match answer.and_then(|answer| caller.share.hold(&method, answer)) {
            Ok(answer) => answer,
            Err(problem) => {
                let problem = if keyed { problem.of_a_keyed_request() } else { problem };
                let problem = problem.bounded();
                problem.log(&id);
                self.metrics.problem(problem.kind());
                problem.into_answer(&id, &self.answers)
            }
        };
        let answer = if method == Method::HEAD { answer.without_body() } else { answer };
        Ok(answer.with_request_id(&id).into_response())
    }

    /// accept → **origin → limits → identity → route → body** → decode → permit → store → reply
    async fn pipeline(&self, request: Request<Arriving>, caller: &Caller, id: &str) -> Result<answer::Answer, Problem> {
        let (head, body) = request.into_parts();
        headers::one_host(&head)?;
        match caller.peer {
            PeerAddress::Ip(_) => self.hosts.check(&head)?,
            // No web page reaches a Unix socket.
            PeerAddress::Unix => {}
        }
        headers::within(&head.headers, self.limits.headers)?;
        let (endpoint, route, name) = routes::find(&head.method, head.uri.path())?;
        let body = body::receive(body, &head.headers, route, &self.limits, &self.bodies).await?;
        let (identity, peer, limits) = (&caller.identity, caller.peer, &self.limits);
        let request = calls::Request { name, head: &head, body, identity, peer, limits };
        endpoint.answer(request, &calls::Context { gateway: self, caller, id }).await
    }

    fn next_id(&self) -> String {
        [&self.run, "-", itoa::Buffer::new().format(self.requests.fetch_add(1, Ordering::Relaxed))].concat()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Reads the rules again, as SIGHUP asks for.
    pub(crate) async fn reload(&self) {
        self.reload_by_signal().await;
    }

    /// From now on the gateway reports that it is not ready, and no request waits for a lock.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.stores.stop_waiting();
    }

    /// Finishes what is queued and closes the stores.
    pub async fn close(self) {
        let Gateway { stores, objects, .. } = self;
        if let Some(objects) = objects {
            objects.close().await;
        }
        opened_stores::close(stores).await;
    }
}
