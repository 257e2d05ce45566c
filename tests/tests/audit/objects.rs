//! Objects: staged bytes, the free-space floor, and recovery.
