//! Random numbers, for unique names and for jitter.

use std::time::Duration;

/// A random number, or an error if the system provides none: names made of it must differ, or one guard would get the
/// outcomes of another.
pub(crate) fn number() -> Result<u64, getrandom::Error> {
    filled(getrandom::fill)
}

fn filled(fill: impl FnOnce(&mut [u8]) -> Result<(), getrandom::Error>) -> Result<u64, getrandom::Error> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A random duration between 0.9 and 1.1 times this one, so that many clients do not act at once.
pub(crate) fn jittered(time: Duration) -> Duration {
    let fifth = time.as_nanos() / 5;
    // Without a random number there is no jitter, which is slower but not wrong.
    let offset = fifth * u128::from(number().unwrap_or(512) % 1024) / 1024;
    time - time / 10 + Duration::from_nanos(u64::try_from(offset).unwrap_or(0))
}

/// A random UUID (version 4).
#[cfg(any(feature = "redis", feature = "etcd", feature = "zk"))]
pub(crate) fn uuid() -> Result<String, getrandom::Error> {
    // Not `Uuid::new_v4`: it panics if the system provides no random bytes.
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_near() {
        for _ in 0..1000 {
            let time = jittered(Duration::from_secs(10));
            assert!((Duration::from_secs(9)..=Duration::from_secs(11)).contains(&time), "{time:?}");
        }
    }

    #[test]
    fn c12_without_a_source_there_is_no_random_number() {
        assert!(filled(|_| Err(getrandom::Error::UNEXPECTED)).is_err());
        let ones = |bytes: &mut [u8]| {
            bytes.fill(1);
            Ok(())
        };
        assert_eq!(filled(ones), Ok(0x0101_0101_0101_0101));
    }

    #[test]
    #[cfg(any(feature = "redis", feature = "etcd", feature = "zk"))]
    fn uuids_say_that_they_are_random() {
        let uuid = uuid().unwrap();
        let parts: Vec<_> = uuid.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']), "{uuid}");
    }
}
