//! The next resource, and the text of values: pseudorandom, and the same in every run.

/// The resource of a connection's request, uniform over all of them.
pub fn spread(connection: u64, request: u64, resources: u64) -> u64 {
    mixed(connection.rotate_left(40) ^ request) % resources.max(1)
}

/// A text of letters and digits that hardly compresses, so that an engine does not profit from compression that real
/// values would not allow.
pub fn text(seed: u64, bytes: usize) -> String {
    const SIGNS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";
    let mut text = String::with_capacity(bytes);
    let mut state = mixed(seed);
    while text.len() < bytes {
        state = mixed(state);
        // Twelve characters of five bits each, out of the 64.
        let signs = (0..12).map(|at| char::from(SIGNS[(state >> (5 * at)) as usize % SIGNS.len()]));
        text.extend(signs.take(bytes - text.len()));
    }
    text
}

/// splitmix64.
fn mixed(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_reach_every_resource_about_alike() {
        let mut hits = [0_u32; 100];
        for connection in 0..64 {
            for request in 0..1000 {
                hits[spread(connection, request, 100) as usize] += 1;
            }
        }
        assert!(hits.iter().all(|hits| (500..800).contains(hits)), "{hits:?}");
    }

    #[test]
    fn texts_have_their_length_and_differ() {
        for bytes in [0, 1, 12, 13, 256] {
            assert_eq!(text(7, bytes).len(), bytes);
        }
        assert_ne!(text(1, 64), text(2, 64));
    }
}
