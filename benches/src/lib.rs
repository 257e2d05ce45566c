//! Benches of Fencepost. `side_by_side/` measures beside peers (`make bench`) and as things grow (`make bench-growth`);
//! `lock_services/`
//! measures each lock service with and without the gateway (`make bench-locks`); `hot_path/` counts instructions (`make bench-instructions`); `benches/` has Criterion's (`make bench-parts`). What the
//! Criterion benches share is in each of them, so that each reads alone.
