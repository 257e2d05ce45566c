//! Files that hold a secret: regular files that belong to root or the gateway's own user and that only their owner
//! may read.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use zeroize::Zeroizing;

/// A larger file is not a secret.
const MAX_BYTES: u64 = 64 << 10;

/// Why a secret file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// The system could not read it.
    #[error("cannot read the secret in {0}: {1}")]
    Read(PathBuf, io::Error),
    /// A symbolic link, which another user may be able to redirect.
    #[error("{0} is a symbolic link, and a secret is not read through one: name the file itself")]
    Link(PathBuf),
    /// A directory, a FIFO or a device.
    #[error("{0} is not a regular file")]
    NotAFile(PathBuf),
    /// Other users can read or write it.
    #[error(
        "{0} holds a secret and can be read or written by others (mode {1:03o}); run `chmod 600 {0}`, and change the secret"
    )]
    Open(PathBuf, u32),
    /// It belongs to another user, who can change it at any time.
    #[error(
        "{path} holds a secret and belongs to user {owner}; only root or the gateway's own user may own it: run `chown {own} {path}`"
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// The user id of this process.
        own: u32,
    },
    /// It is too large to be a secret.
    #[error("{0} has {1} bytes, which is too much for a secret; the limit is {MAX_BYTES}")]
    TooLarge(PathBuf, u64),
    /// The system could not create it.
    #[error("cannot make {0}: {1}")]
    Make(PathBuf, io::Error),
}

/// Reads a file that only its owner can read. The text is wiped from memory when it is dropped.
pub fn read(path: &Path) -> Result<Zeroizing<String>, SecretFileError> {
    let cannot = |error: io::Error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => SecretFileError::Link(path.to_owned()),
        _ => SecretFileError::Read(path.to_owned(), error),
    };
    // NONBLOCK: opening a FIFO would block the start, or a reload, until another process writes to it.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path).map_err(cannot)?;
    // Check the open file, because the name may refer to another file by now.
    let metadata = file.metadata().map_err(cannot)?;
    if !metadata.is_file() {
        return Err(SecretFileError::NotAFile(path.to_owned()));
    }
    check_private(path, &metadata)?;
    if metadata.len() > MAX_BYTES {
        return Err(SecretFileError::TooLarge(path.to_owned(), metadata.len()));
    }
    // Allocate the full size at once: a growing buffer leaves copies of the secret in memory.
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES as usize));
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

/// Refuses a secret file that another user can read, write or replace the contents of.
pub fn check_private(path: &Path, metadata: &Metadata) -> Result<(), SecretFileError> {
    check_private_for(rustix::process::geteuid().as_raw(), path, metadata.uid(), metadata.mode())
}

fn check_private_for(own: u32, path: &Path, owner: u32, mode: u32) -> Result<(), SecretFileError> {
    if owner != 0 && owner != own {
        return Err(SecretFileError::Owner { path: path.to_owned(), owner, own });
    }
    if mode & 0o077 != 0 {
        return Err(SecretFileError::Open(path.to_owned(), mode & 0o777));
    }
    Ok(())
}

/// Creates a file that only its owner can read. It either exists with its full text on stable storage, or not at all.
/// An existing file is an error.
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
    // Unlike a rename, a link does not replace an existing file.
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
        assert_eq!(read(&path).unwrap().as_str(), "first");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(make(&path, "second"), Err(SecretFileError::Make(..))));
        assert_eq!(read(&path).unwrap().as_str(), "first");
    }

    #[test]
    fn what_an_ended_process_left_is_no_hindrance() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("secret.unfinished"), "ha").unwrap();
        let path = directory.path().join("secret");
        make(&path, "whole").unwrap();
        assert_eq!(read(&path).unwrap().as_str(), "whole");
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

    #[test]
    fn s16_a_secret_is_not_read_through_a_link_or_from_a_fifo() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        make(&path, "whole").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(read(&link), Err(SecretFileError::Link(_))));
        let fifo = directory.path().join("fifo");
        let mode = rustix::fs::Mode::from_bits_truncate(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
        // Without NONBLOCK this would never return.
        assert!(matches!(read(&fifo), Err(SecretFileError::NotAFile(_))));
    }

    #[test]
    fn s16_a_secret_belongs_to_root_or_to_us() {
        let path = Path::new("secret");
        for (own, owner, allowed) in [(0, 0, true), (7, 7, true), (7, 0, true), (7, 8, false), (0, 7, false)] {
            assert_eq!(check_private_for(own, path, owner, 0o100_600).is_ok(), allowed, "{own} {owner}");
        }
        let error = check_private_for(7, path, 8, 0o100_600).unwrap_err().to_string();
        assert!(error.contains("belongs to user 8") && error.contains("chown 7 secret"), "{error}");
    }
}
