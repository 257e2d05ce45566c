//! What a request names: an object, a folder marker, or a name that cannot exist here.
//!
//! S3 has names that a directory cannot hold. Such an object cannot exist: a read reports that it is absent, a
//! removal that it is gone, and only a write is refused. All of these are judged first, by the fence of the nearest
//! possible name, so that a stale holder is refused whatever it names.

use fencepost_core::{Key, MAX_NAME_BYTES, Presented};
use fencepost_objects::untellable;
use s3s::{S3Error, S3Result, s3_error};

use super::caller::{Caller, object_name};
use super::calls::Calls;
use super::errors;
use super::permit::Permitted;

/// What a bucket and a key name together.
pub(super) enum Named {
    /// An object.
    Object(Key),
    /// A folder marker, by the name of its folder. That name is also judged.
    Folder(Key),
    /// A name that cannot exist.
    Impossible(Impossible),
}

/// A name that can be written.
#[derive(Clone)]
pub(super) enum Target {
    /// An object.
    Object(Key),
    /// A folder marker, by the name of its folder.
    Folder(Key),
}

impl Target {
    /// The name of the object, or of the folder.
    pub(super) fn name(&self) -> &Key {
        match self {
            Target::Object(name) | Target::Folder(name) => name,
        }
    }
}

/// A name that cannot exist.
pub(super) struct Impossible {
    /// The name whose fence judges it.
    pub(super) judged: Key,
    /// Why it cannot exist.
    pub(super) why: S3Error,
}

impl Named {
    pub(super) fn new(bucket: &str, key: &str) -> S3Result<Named> {
        let why = match object_name(bucket, key) {
            Ok(name) => return Ok(Named::Object(name)),
            Err(why) => why,
        };
        let fits = bucket.len() + 1 + key.len() <= MAX_NAME_BYTES;
        match key.strip_suffix('/').filter(|_| fits).map(|folder| object_name(bucket, folder)) {
            Some(Ok(folder)) => Ok(Named::Folder(folder)),
            Some(Err(_)) | None => Ok(Named::Impossible(Impossible { judged: judged_by(bucket, key)?, why })),
        }
    }

    /// The name whose fence judges it.
    pub(super) fn judged(&self) -> &Key {
        match self {
            Named::Object(key) | Named::Folder(key) => key,
            Named::Impossible(Impossible { judged, .. }) => judged,
        }
    }
}

/// The name whose fence judges a name: the name itself if it is possible, otherwise the nearest possible one, without
/// the segments and characters that make it impossible.
pub(super) fn judged_by(bucket: &str, key: &str) -> S3Result<Key> {
    let mut name = bucket.to_owned();
    for segment in key.split('/') {
        let segment: String = segment.chars().filter(|c| !untellable(*c)).collect();
        if matches!(segment.as_str(), "" | "." | "..") {
            continue;
        }
        if name.len() + 1 + segment.len() > MAX_NAME_BYTES {
            break;
        }
        name.push('/');
        name.push_str(&segment);
    }
    Key::new(&name).map_err(|error| errors::name(bucket, &error))
}

/// Returns whether a text has characters that XML cannot represent.
pub(super) fn breaks_xml(text: &str) -> bool {
    text.chars().any(|c| untellable(c) && !matches!(c, '\n' | '\t' | '\r'))
}

impl Calls {
    /// What a write names, and what it presents to the judge.
    pub(super) async fn named(
        &self,
        caller: &Permitted<Caller>,
        bucket: &str,
        key: &str,
    ) -> S3Result<(Named, Option<Presented>)> {
        let named = Named::new(bucket, key)?;
        let presented = self.presented(caller, named.judged()).await?;
        Ok((named, presented))
    }

    /// The target of a write, and what the write presents.
    pub(super) async fn target(
        &self,
        caller: &Permitted<Caller>,
        bucket: &str,
        key: &str,
    ) -> S3Result<(Target, Option<Presented>)> {
        let (named, presented) = self.named(caller, bucket, key).await?;
        match named {
            Named::Object(key) => Ok((Target::Object(key), presented)),
            Named::Folder(folder) => Ok((Target::Folder(folder), presented)),
            Named::Impossible(impossible) => Err(self.unwritable(impossible, presented.as_ref()).await),
        }
    }

    /// Why such a name cannot be written: the refusal by the fence if there is one, otherwise the error of the name.
    async fn unwritable(&self, impossible: Impossible, presented: Option<&Presented>) -> S3Error {
        match self.objects.foresee(&impossible.judged, presented).await {
            Ok(()) => impossible.why,
            Err(error) => self.error(error),
        }
    }

    /// The object that a call about an upload names, and what the call presents. Only objects can have uploads.
    pub(super) async fn uploaded(
        &self,
        caller: &Permitted<Caller>,
        bucket: &str,
        key: &str,
    ) -> S3Result<(Key, Option<Presented>)> {
        let (named, presented) = self.named(caller, bucket, key).await?;
        let impossible = match named {
            Named::Object(name) => return Ok((name, presented)),
            Named::Impossible(impossible) => impossible,
            Named::Folder(judged) => Impossible {
                why: s3_error!(
                    InvalidArgument,
                    "`{judged}/` ends in `/`, so it is the marker of a folder, which is not uploaded in parts."
                ),
                judged,
            },
        };
        Err(self.unwritable(impossible, presented.as_ref()).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(key: &str) -> String {
        match Named::new("bkt", key).unwrap() {
            Named::Object(key) => format!("object {key}"),
            Named::Folder(key) => format!("folder {key}"),
            Named::Impossible(impossible) => format!("judged by {}", impossible.judged),
        }
    }

    #[test]
    fn a_name_is_an_object_a_folder_or_judged_by_the_nearest_one() {
        let long = "n".repeat(MAX_NAME_BYTES - 4);
        let (too_long, too_deep) = (format!("{long}/"), format!("a/{long}"));
        let longest = format!("judged by bkt/{long}");
        for (key, expected) in [
            ("a/b", "object bkt/a/b"),
            ("a/", "folder bkt/a"),
            ("a/b/", "folder bkt/a/b"),
            ("/", "judged by bkt"),
            ("a//", "judged by bkt/a"),
            ("//a", "judged by bkt/a"),
            ("a//b", "judged by bkt/a/b"),
            ("a/../b", "judged by bkt/a/b"),
            ("./", "judged by bkt"),
            ("a\u{1}b", "judged by bkt/ab"),
            (".\u{1}.", "judged by bkt"),
            (too_long.as_str(), longest.as_str()),
            (too_deep.as_str(), "judged by bkt/a"),
        ] {
            assert_eq!(shown(key), expected, "{key}");
        }
    }
}
