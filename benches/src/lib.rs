//! Benches of Fencepost.
//!
//! - `side_by_side/` compares with peers (`make bench`) and measures growth (`make bench-growth`).
//! - `lock_services/` measures each lock service with and without the gateway (`make bench-locks`).
//! - `hot_path/` counts instructions (`make bench-instructions`).
//! - `benches/` has the Criterion benches (`make bench-parts`). They repeat their shared code, so that each can be read
//!   alone.
