//! Permissions of the data directory. It holds every value, the audit log and the key of S3 credentials.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Permissions that are refused: any of other users, and the group's to write. The group may read the directory, as
/// with PostgreSQL; the files in it are private in any case.
const TOO_OPEN: u32 = 0o027;

/// Why a data directory is not used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// Other users can read its files, or replace them.
    #[error(
        "other users may enter the data directory {0}, or its group may write it (mode {1:03o}): run `chmod 700 {0}`, or insist with --data-mode-ok"
    )]
    Open(PathBuf, u32),
    /// Its permissions cannot be read.
    #[error("cannot look at the data directory {0}: {1}")]
    Unknown(PathBuf, io::Error),
}

/// Refuses a directory that is open to other users and is not empty. An empty one is made private; a missing one will
/// be created with mode 0700.
pub fn check(path: &Path, insist: bool) -> Result<(), DataDirectoryError> {
    let unknown = |error| DataDirectoryError::Unknown(path.to_owned(), error);
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unknown(error)),
    };
    let mode = found.mode() & 0o777;
    if mode & TOO_OPEN == 0 || !found.is_dir() {
        return Ok(());
    }
    if insist {
        tracing::warn!(path = %path.display(), mode = format_args!("{mode:03o}"), "other users may enter the data directory");
        return Ok(());
    }
    let is_empty = fs::read_dir(path).map_err(unknown)?.next().is_none();
    if is_empty && fs::set_permissions(path, fs::Permissions::from_mode(0o700)).is_ok() {
        tracing::info!(path = %path.display(), "the empty data directory was open to other users (mode {mode:03o}) and is private now");
        return Ok(());
    }
    Err(DataDirectoryError::Open(path.to_owned(), mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s15_others_are_kept_out_and_the_group_may_only_look() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::write(path.join("FENCEPOST"), "").unwrap();
        let checked = |mode: u32, insist: bool| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            check(path, insist)
        };
        for mode in [0o700, 0o750, 0o710, 0o2750] {
            assert!(checked(mode, false).is_ok(), "{mode:o}");
        }
        for mode in [0o755, 0o701, 0o704, 0o702, 0o770, 0o720, 0o777] {
            let error = checked(mode, false).unwrap_err().to_string();
            let advice = format!("run `chmod 700 {}`", path.display());
            assert!(error.contains(&format!("mode {mode:03o}")) && error.contains(&advice), "{error}");
            assert!(checked(mode, true).is_ok(), "{mode:o}");
        }
        assert!(check(&path.join("missing"), false).is_ok(), "it will be made with mode 0700");
    }

    #[test]
    fn s15_an_empty_directory_is_made_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        check(path, false).unwrap();
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700);
    }
}
