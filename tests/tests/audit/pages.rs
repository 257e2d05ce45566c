//! Web pages that attack the loopback API, and error texts.
