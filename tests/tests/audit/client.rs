//! The client and its commands: generations, unknown outcomes, waits and secrets.
