//! What a run has shown, for people and for programs.
