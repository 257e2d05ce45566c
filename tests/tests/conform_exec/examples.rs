//! The shipped adapters, against real servers.
