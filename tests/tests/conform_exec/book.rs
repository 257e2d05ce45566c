//! docs/conformance/exec.md says what the code does.
