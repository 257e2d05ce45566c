//! Criterion benches of Fencepost, and the run beside its peers (`side_by_side/`): `make bench`. What the benches share is in
//! each of them, so that each reads alone.
