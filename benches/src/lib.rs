//! Benches of Fencepost. `side_by_side/` measures beside peers (`make bench`) and as things grow (`make bench-growth`);
//! `hot_path/` counts instructions (`make bench-instructions`); `benches/` has Criterion's (`make bench-parts`). What the
//! Criterion benches share is in each of them, so that each reads alone.
