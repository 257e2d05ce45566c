//! Files that hold a secret: nobody but their owner may read them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// More than this is no secret but another file.
const MAX_BYTES: u64 = 64 << 10;

/// Why a file of a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// The system said no.
    #[error("cannot read the secret in {0}: {1}")]
    Read(PathBuf, io::Error),
    /// Not a file.
    #[error("{0} is not a file")]
    NotAFile(PathBuf),
    /// It is no secret.
    #[error("{0} can be read or written by others (mode {1:03o}); run `chmod 600 {0}`, and change the secret")]
    Open(PathBuf, u32),
    /// It holds something else.
    #[error("{0} has {1} bytes, which is too much for a secret; the limit is {MAX_BYTES}")]
    TooLarge(PathBuf, u64),
    /// The system said no.
    #[error("cannot make {0}: {1}")]
    Make(PathBuf, io::Error),
}

/// The text of a file that only its owner can read.
pub fn read(path: &Path) -> Result<String, SecretFileError> {
    let cannot = |error| SecretFileError::Read(path.to_owned(), error);
    let file = File::open(path).map_err(cannot)?;
    // Of the file that is open, not of whatever has its name by now.
    let metadata = file.metadata().map_err(cannot)?;
    if !metadata.is_file() {
        return Err(SecretFileError::NotAFile(path.to_owned()));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(SecretFileError::Open(path.to_owned(), metadata.mode() & 0o777));
    }
    if metadata.len() > MAX_BYTES {
        return Err(SecretFileError::TooLarge(path.to_owned(), metadata.len()));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

/// Makes a file that only its owner can read. It is there with all of its text, on stable storage, or not at all; one
/// that is there already is an error.
pub fn make(path: &Path, text: &str) -> Result<(), SecretFileError> {
    write_whole(path, text).map_err(|error| SecretFileError::Make(path.to_owned(), error))
}

fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    // Unlike a rename, this replaces nothing.
    fs::hard_link(&unfinished, path)?;
    fs::remove_file(&unfinished)?;
    File::open(path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_made_once_and_read_by_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        make(&path, "first").unwrap();
        assert_eq!(read(&path).unwrap(), "first");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(make(&path, "second"), Err(SecretFileError::Make(..))));
        assert_eq!(read(&path).unwrap(), "first");
    }

    #[test]
    fn what_an_ended_process_left_is_no_hindrance() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("secret.unfinished"), "ha").unwrap();
        let path = directory.path().join("secret");
        make(&path, "whole").unwrap();
        assert_eq!(read(&path).unwrap(), "whole");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        make(&path, "known to all").unwrap();
        for mode in [0o640, 0o604, 0o620, 0o602, 0o644] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("{mode:03o}")) && error.contains("chmod 600"), "{error}");
            assert!(!error.contains("known to all"));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert!(read(&path).is_ok());
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(read(directory.path()), Err(SecretFileError::NotAFile(_))));
        assert!(matches!(read(&directory.path().join("absent")), Err(SecretFileError::Read(..))));
        let large = directory.path().join("large");
        make(&large, &"x".repeat(MAX_BYTES as usize + 1)).unwrap();
        assert!(matches!(read(&large), Err(SecretFileError::TooLarge(..))));
    }
}
