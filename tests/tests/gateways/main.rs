//! Several gateways over one PostgreSQL or etcd: the guarantees hold whichever gateway answers, and whatever dies.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, also in its helpers")]

mod accounts;
mod answers;
mod backups;
mod balanced;
mod balancer;
mod compared;
mod conformance;
mod crash;
mod engine_check;
mod engines_per_guard;
mod etcd;
mod failover;
mod gateways;
mod held;
mod lanes;
mod linearizability;
mod locks;
mod primaries;
mod replaced;
mod start;
mod team;
mod unanswered;
mod zombie;
