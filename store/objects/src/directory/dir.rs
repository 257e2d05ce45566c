//! An open directory. All access is relative to its descriptor, stays beneath it and on its file system, and follows
//! no links (L6).

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use crate::layout::{LayoutError, Mark};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
// `FS_CASEFOLD_FL` of Linux.
const CASEFOLD: u32 = 0x4000_0000;

/// A directory, and its path below the root for messages (the root's is empty).
#[derive(Debug)]
pub(super) struct Dir {
    fd: OwnedFd,
    path: String,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Dir {
    /// Opens the root. Links are followed only here, because the administrator chose the path.
    pub(super) fn root(path: &Path) -> Result<Dir, Errno> {
        let fd = retry_on_intr(|| fs::open(path, DIRECTORY, Mode::empty()))?;
        Ok(Dir { fd, path: String::new() })
    }

    /// The path below the root of an entry of this directory.
    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) }
    }

    /// The directory's own path below the root.
    pub(super) fn path(&self) -> &str {
        if self.path.is_empty() { "." } else { &self.path }
    }

    fn open(&self, path: &str, flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
        retry_on_intr(|| fs::openat2(&self.fd, path, flags, Mode::from_bits_truncate(mode), BENEATH))
    }

    pub(super) fn open_dir(&self, path: &str) -> Result<Dir, Errno> {
        Ok(Dir { fd: self.open(path, DIRECTORY, 0)?, path: self.path_of(path) })
    }

    pub(super) fn make_dir(&self, name: &str, mode: u32) -> Result<(), Errno> {
        fs::mkdirat(&self.fd, name, Mode::from_bits_truncate(mode))
    }

    /// Opens a directory, creating it if it is missing.
    pub(super) fn open_or_make_dir(&self, name: &str, mode: u32) -> Result<Dir, Errno> {
        match self.make_dir(name, mode) {
            Ok(()) | Err(Errno::EXIST) => self.open_dir(name),
            Err(error) => Err(error),
        }
    }

    /// Sets the mode regardless of the umask. Special bits such as set-group-id are kept, because a directory may
    /// have inherited them.
    pub(super) fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        set_mode(&self.fd, mode)
    }

    /// Creates a file that must not exist.
    pub(super) fn create(&self, name: &str, mode: u32) -> Result<File, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.open(name, flags, mode).map(File::from)
    }

    /// Opens a file for reading and writing, creating it if it is missing.
    pub(super) fn open_or_create(&self, name: &str, mode: u32) -> Result<File, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        self.open(name, flags, mode).map(File::from)
    }

    /// Opens a regular file for reading. `None`: the name is absent, or not a regular file.
    pub(super) fn open_file(&self, path: &str) -> Result<Option<(File, Stat)>, Errno> {
        // Without NONBLOCK, opening a FIFO would block until another process opens it for writing.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = match self.open(path, flags, 0) {
            Ok(fd) => fd,
            Err(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::LOOP
                | Errno::XDEV
                | Errno::NXIO
                | Errno::NODEV
                | Errno::NAMETOOLONG,
            ) => return Ok(None),
            Err(error) => return Err(error),
        };
        let stat = fs::fstat(&fd)?;
        Ok(kind(&stat).is_file().then(|| (File::from(fd), stat)))
    }

    /// Reads the metadata of an entry, without following links.
    pub(super) fn stat(&self, name: &str) -> Result<Option<Stat>, Errno> {
        match fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn stat_self(&self) -> Result<Stat, Errno> {
        fs::fstat(&self.fd)
    }

    /// Removes a file. `false`: it did not exist.
    pub(super) fn remove_file(&self, name: &str) -> Result<bool, Errno> {
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a directory. `false`: it is not empty.
    pub(super) fn remove_dir(&self, name: &str) -> Result<bool, Errno> {
        match fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn rename(&self, name: &str, to: &Dir, new: &str) -> Result<(), Errno> {
        fs::renameat(&self.fd, name, &to.fd, new)
    }

    pub(super) fn sync(&self) -> Result<(), Errno> {
        retry_on_intr(|| fs::fsync(&self.fd))
    }

    /// The entries, without `.` and `..`.
    pub(super) fn entries(&self) -> Result<impl Iterator<Item = Result<fs::DirEntry, Errno>>, Errno> {
        let listing = fs::Dir::read_from(&self.fd)?;
        Ok(listing
            .filter(|entry| !entry.as_ref().is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))))
    }

    /// Returns whether this process may create, replace and remove entries.
    pub(super) fn is_writable(&self) -> bool {
        fs::accessat(&self.fd, ".", fs::Access::WRITE_OK | fs::Access::EXEC_OK, AtFlags::empty()).is_ok()
    }

    /// Returns whether the file system treats `a` and `A` as the same name here.
    pub(super) fn folds_case(&self) -> bool {
        fs::ioctl_getflags(&self.fd).is_ok_and(|flags| flags.bits() & CASEFOLD != 0)
    }
}

/// Sets the mode of a file or directory regardless of the umask.
pub(super) fn set_mode(fd: impl AsFd, mode: u32) -> Result<(), Errno> {
    let found = fs::fstat(&fd)?.st_mode;
    if found & 0o777 == mode {
        return Ok(());
    }
    match fs::fchmod(&fd, Mode::from_bits_truncate(found & 0o7000 | mode)) {
        // This file system does not support changing modes.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        changed => changed,
    }
}

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The name of a file type, for messages.
pub(super) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of a kind unknown here",
    }
}

pub(super) fn mark_of(stat: &Stat) -> Mark {
    Mark { size: u64::try_from(stat.st_size).unwrap_or(0), inode: stat.st_ino }
}

pub(super) fn modified_ms(stat: &Stat) -> u64 {
    u64::try_from(stat.st_mtime).unwrap_or(0).saturating_mul(1000).saturating_add(stat.st_mtime_nsec / 1_000_000)
}

/// Converts a system error, with a description of the operation that failed.
pub(super) fn failed(what: impl Into<String>, error: Errno) -> LayoutError {
    let what = what.into();
    match error {
        Errno::NOSPC | Errno::DQUOT => {
            LayoutError::NoSpace(format!("{what}: the storage has no room left ({error}); free some, then try again"))
        }
        error => LayoutError::Failed { what, error: error.to_string() },
    }
}

/// Like [`failed`], for errors of the standard library.
pub(super) fn failed_io(what: impl Into<String>, error: &std::io::Error) -> LayoutError {
    match Errno::from_io_error(error) {
        Some(errno) => failed(what, errno),
        None => LayoutError::Failed { what: what.into(), error: error.to_string() },
    }
}
