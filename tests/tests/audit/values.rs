//! Large values and the writers beside them.
