//! Connections and their bodies: deadlines, shares per caller, and answers that clients can read.
