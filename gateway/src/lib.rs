//! The `fencepost` program: listeners, the HTTP and S3 front ends, and the commands.
//!
//! [`server::Server`] runs every listener by the one accept loop in [`listener`], each with its front end: [`http`]
//! (public and administrators') and [`s3`]. The front ends do not depend on each other; what both need is in modules
//! beside them. A request goes one way: limits, identity, decode, permit, the store, reply. The program is the
//! interface; this library exists for the binary and for tests.
//!
//! ```sh
//! fencepost serve --data ./fencepost-data
//! fencepost kv put orders/123 paid --token 34
//! fencepost kv put orders/123 late --token 33     # refused: exit code 3
//! ```
//!
//! # Modules
//!
//! | module | for |
//! | --- | --- |
//! | [`server`], [`listener`] | every listener, and the accept loop with its deadlines and limits |
//! | [`http`] | the HTTP interface `/v1`: a file per call, the pipeline of a request, problems, the OpenAPI document |
//! | [`s3`] | the S3 front end, whose access keys carry the token of a lock |
//! | [`credentials`], [`metrics`] | what both front ends need: access keys of leases, and the counters |
//! | [`cli`] | the commands, one file each; `serve` puts everything together |
//! | [`config`], [`reload`] | settings of a gateway, and which of them change while it runs |
//! | [`opened_stores`] | the stores of a configuration: that of the data directory, and those that guards name |
//! | [`data_directory`], [`position_file`] | permissions of the data directory, and whether it is the newest copy |
//! | [`mod@bench`] | the load of `fencepost bench` |
//!
//! # Read on
//!
//! `docs/request-life.md` follows a request; `docs/api.md` has the calls, `docs/configuration.md` the settings,
//! `docs/s3.md` the S3 front end.

pub mod bench;
pub mod cli;
pub mod config;
pub mod credentials;
pub mod data_directory;
pub mod http;
pub mod listener;
pub mod metrics;
pub mod opened_stores;
mod peer;
pub mod position_file;
mod quantity;
pub mod reload;
pub mod s3;
pub mod server;
mod sole_owner;
