//! etcd over gRPC: its messages, and channels to a cluster.

mod call;
mod channel;
mod cluster;
mod connection;
pub mod messages;
mod trouble;

pub use call::Rpc;
pub use channel::Channel;
pub use cluster::Cluster;
pub use trouble::{Refusal, Trouble};
