//! Real runs, of a resource that is right and of some that are not.
