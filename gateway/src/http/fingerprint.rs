//! Fingerprints, which identify requests for idempotency keys. Tokens are not part of them.

use sha2::{Digest, Sha256};

/// Hashes the parts, each with its length, so that different lists of parts are different input.
pub(super) fn fingerprint(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(fingerprint(&[b"ab", b"c"]), fingerprint(&[b"a", b"bc"]));
        assert_ne!(fingerprint(&[b"a"]), fingerprint(&[b"a", b""]));
        assert_eq!(fingerprint(&[b"a", b"b"]), fingerprint(&[b"a", b"b"]));
    }
}
