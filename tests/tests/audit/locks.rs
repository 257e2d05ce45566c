//! The built-in locks: waiters never starve the holder or each other.
