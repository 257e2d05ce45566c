//! Operating a gateway: start, limits, reload, drain, the administrator's socket, and the API document.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, also in its helpers")]

mod admin;
mod admin_socket;
mod drain;
mod limits;
mod openapi;
mod reload;
mod serve;
