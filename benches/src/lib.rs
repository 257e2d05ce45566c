//! Criterion benches of Fencepost: `make bench`. What they share is in each bench, so that each reads alone.
