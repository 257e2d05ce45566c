//! The disk fails or is slow under the real process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, also in its helpers")]

mod background;
mod delay;
mod disk;
