//! Bucket names, and the mapping of keys to paths.

use fencepost_core::Key;

use crate::layout::LayoutError;

/// A key as a path below the root: `bucket/parents…/name`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectPath<'a> {
    key: &'a str,
    bucket: &'a str,
    parent: &'a str,
    name: &'a str,
}

impl<'a> ObjectPath<'a> {
    /// Checks that a file system with names of at most `name_max` bytes can hold the key. [`Key`] has no empty or dot
    /// segments, and its limit of 1024 bytes is below the longest path (4096 bytes).
    pub(super) fn new(key: &'a Key, name_max: usize) -> Result<ObjectPath<'a>, LayoutError> {
        let key = key.as_str();
        let (Some((bucket, _)), Some((parent, name))) = (key.split_once('/'), key.rsplit_once('/')) else {
            return Err(LayoutError::Name(format!("`{key}` names a bucket and no object in it: write `{key}/name`")));
        };
        if !is_bucket_name(bucket) {
            return Err(LayoutError::NoBucket(bucket.to_owned()));
        }
        match key.split('/').find(|part| part.len() > name_max) {
            Some(part) => Err(LayoutError::Name(format!(
                "`{key}` has a part of {} bytes between two `/`, and a file name here has at most {name_max}: use shorter \
                 parts",
                part.len()
            ))),
            None => Ok(ObjectPath { key, bucket, parent, name }),
        }
    }

    /// The whole path.
    pub(super) fn whole(&self) -> &'a str {
        self.key
    }

    /// The segments between the `/`.
    pub(super) fn parts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.key.split('/')
    }

    pub(super) fn bucket(&self) -> &'a str {
        self.bucket
    }

    /// The path of the directory that contains the file.
    pub(super) fn parent(&self) -> &'a str {
        self.parent
    }

    /// The file's name in that directory.
    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    /// The paths of all directories above the file, starting with the bucket.
    pub(super) fn dirs(&self) -> impl DoubleEndedIterator<Item = &'a str> + use<'a> {
        let key = self.key;
        key.match_indices('/').map(move |(at, _)| &key[..at])
    }
}

/// Splits a path into its parent and its last segment.
pub(super) fn split_last(path: &str) -> (Option<&str>, &str) {
    match path.rsplit_once('/') {
        Some((above, name)) => (Some(above), name),
        None => (None, path),
    }
}

/// The S3 rules for bucket names, for messages.
pub(super) const BUCKET_RULES: &str = "a bucket has 3 to 63 characters of a-z, 0-9, `.` and `-`, begins and ends with a \
                                       letter or digit, has no two dots in a row, does not look like an IP address, and \
                                       uses no prefix or suffix that S3 keeps for itself";

/// Returns whether S3 allows this bucket name. Names that clients interpret as something else are not allowed.
pub(super) fn is_bucket_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    (3..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-'))
        && edge(bytes.first())
        && edge(bytes.last())
        && !name.contains("..")
        && name.parse::<std::net::Ipv4Addr>().is_err()
        && !["xn--", "sthree-"].iter().any(|kept| name.starts_with(kept))
        && !["-s3alias", "--ol-s3", ".mrap", "--x-s3"].iter().any(|kept| name.ends_with(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_named_by_the_rules_of_s3() {
        for good in ["abc", "a-b.c", "0ab", "my.bucket.2", &"a".repeat(63)] {
            assert!(is_bucket_name(good), "{good}");
        }
        let long = "a".repeat(64);
        for bad in [
            "",
            "ab",
            &long,
            "Abc",
            "a_b",
            "-ab",
            "ab-",
            ".ab",
            "ab.",
            "a..b",
            "10.0.0.1",
            "xn--abc",
            "abc-s3alias",
            ".fencepost",
            "a b",
            "aé0",
            "..",
            "a/b",
        ] {
            assert!(!is_bucket_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_key_becomes_a_path() {
        let key = Key::new("bucket/a/b/c").unwrap();
        let path = ObjectPath::new(&key, 255).unwrap();
        assert_eq!(
            (path.whole(), path.bucket(), path.parent(), path.name()),
            ("bucket/a/b/c", "bucket", "bucket/a/b", "c")
        );
        assert_eq!(path.dirs().collect::<Vec<_>>(), ["bucket", "bucket/a", "bucket/a/b"]);
        assert!(matches!(ObjectPath::new(&Key::new("bucket").unwrap(), 255), Err(LayoutError::Name(_))));
        assert!(matches!(ObjectPath::new(&Key::new(".fencepost/x").unwrap(), 255), Err(LayoutError::NoBucket(_))));
    }
}
