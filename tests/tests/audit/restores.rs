//! Data directories that are put back, mappings, and clocks that jump.
