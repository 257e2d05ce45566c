//! A copy of a directory, as a backup makes it: links stay links, holes stay holes, owners, permissions and times are kept. Sockets and
//! pipes are left out: whoever listens there makes them anew.

use std::fs::{self, DirBuilder, File, FileTimes, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::Path;

use rustix::fs::SeekFrom as Part;
use rustix::io::Errno;

use crate::subject::Broken;

/// Copies what a directory contains into another one.
pub(super) fn contents(from: &Path, to: &Path) -> Result<(), Broken> {
    let copied = (|| -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        Ok(())
    })();
    copied.map_err(|error| Broken(format!("{} cannot be copied to {}: {error}", from.display(), to.display())))
}

/// Empties a directory. The directory itself stays.
pub(super) fn empty(directory: &Path) -> Result<(), Broken> {
    let emptied = (|| -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    })();
    emptied.map_err(|error| Broken(format!("{} cannot be emptied: {error}", directory.display())))
}

/// Moves what a directory contains into another one of the same file system: nothing of it changes.
pub(super) fn moved(from: &Path, to: &Path) -> Result<(), Broken> {
    let moved = (|| -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            fs::rename(entry.path(), to.join(entry.file_name()))?;
        }
        Ok(())
    })();
    moved.map_err(|error| Broken(format!("{} cannot be moved to {}: {error}", from.display(), to.display())))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(from)?;
    let kind = found.file_type();
    if kind.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
        own(to, &found)
    } else if kind.is_dir() {
        // It may be one that its owner must not write to.
        DirBuilder::new().mode(0o700).create(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        own(to, &found)?;
        fs::set_permissions(to, found.permissions())
    } else if kind.is_file() {
        file(from, to, &found)
    } else {
        Ok(())
    }
}

/// Gives a copy to the owner of what was copied: a service may have one of its own, and refuse the files of others.
fn own(copy: &Path, found: &Metadata) -> io::Result<()> {
    let made = fs::symlink_metadata(copy)?;
    match (made.uid(), made.gid()) == (found.uid(), found.gid()) {
        true => Ok(()),
        false => lchown(copy, Some(found.uid()), Some(found.gid())),
    }
}

fn file(from: &Path, to: &Path, found: &Metadata) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    target.set_len(found.len())?;
    let mut at = 0;
    while let Some((begin, end)) = next_part(&source, at)? {
        source.seek(SeekFrom::Start(begin))?;
        target.seek(SeekFrom::Start(begin))?;
        let part = (&source).take(end - begin);
        io::copy(&mut { part }, &mut target)?;
        at = end;
    }
    target.flush()?;
    own(to, found)?;
    target.set_permissions(fs::Permissions::from_mode(found.permissions().mode()))?;
    target.set_times(FileTimes::new().set_modified(found.modified()?))
}

/// From where to where the file has bytes, at this place or after it.
fn next_part(file: &File, at: u64) -> io::Result<Option<(u64, u64)>> {
    let begin = match rustix::fs::seek(file, Part::Data(at)) {
        Ok(begin) => begin,
        // There is nothing but a hole.
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some((begin, rustix::fs::seek(file, Part::Hole(begin))?)))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{Seek, SeekFrom, Write};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};

    use tempfile::TempDir;

    use super::{contents, empty, moved};

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A directory with everything that may lie in one.
    fn odd() -> TempDir {
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("deep/er")).unwrap();
        fs::write(at("deep/er/file"), "inside").unwrap();
        fs::write(at("script"), "run").unwrap();
        set_mode(&at("script"), 0o750);
        set_mode(&at("deep"), 0o555);
        fs::write(at("empty"), "").unwrap();
        symlink("script", at("link")).unwrap();
        symlink("/nowhere/at/all", at("dangling")).unwrap();
        symlink(".", at("loop")).unwrap();
        let mut sparse = File::create(at("sparse")).unwrap();
        sparse.seek(SeekFrom::Start(64 << 20)).unwrap();
        sparse.write_all(b"end").unwrap();
        sparse.set_len(128 << 20).unwrap();
        drop(UnixListener::bind(at("socket")).unwrap());
        dir
    }

    #[test]
    fn a_copy_is_like_what_was_copied() {
        let (from, to) = (odd(), TempDir::new().unwrap());
        contents(from.path(), to.path()).unwrap();
        let at = |name: &str| to.path().join(name);
        assert_eq!(fs::read(at("deep/er/file")).unwrap(), b"inside");
        assert_eq!(
            (mode(&at("script")), mode(&at("deep")), mode(&at("deep/er"))),
            (0o750, 0o555, mode(&from.path().join("deep/er")))
        );
        assert_eq!(fs::read_link(at("link")).unwrap(), PathBuf::from("script"));
        assert_eq!(fs::read_link(at("dangling")).unwrap(), PathBuf::from("/nowhere/at/all"));
        assert_eq!(fs::read_link(at("loop")).unwrap(), PathBuf::from("."));
        let (source, sparse) = (from.path().join("sparse").metadata().unwrap(), at("sparse").metadata().unwrap());
        assert_eq!((sparse.len(), sparse.modified().unwrap()), (source.len(), source.modified().unwrap()));
        assert!(sparse.blocks() * 512 < 1 << 20, "{} blocks for three bytes", sparse.blocks());
        assert!(fs::read(from.path().join("sparse")).unwrap() == fs::read(at("sparse")).unwrap());
        assert_eq!(at("empty").metadata().unwrap().len(), 0);
        assert!(!at("socket").exists(), "who listens makes it anew");
        for dir in [from, to] {
            set_mode(&dir.path().join("deep"), 0o755);
        }
    }

    #[test]
    fn a_copy_belongs_to_whom_the_original_belongs() {
        let (from, to) = (odd(), TempDir::new().unwrap());
        for name in ["script", "link", "deep"] {
            // Only root can give files away; for everybody else all files are their own.
            let _ = lchown(from.path().join(name), Some(65_534), Some(65_534));
        }
        contents(from.path(), to.path()).unwrap();
        for name in ["script", "link", "deep", "deep/er", "sparse"] {
            let owner = |dir: &TempDir| {
                let found = fs::symlink_metadata(dir.path().join(name)).unwrap();
                (found.uid(), found.gid(), found.mode())
            };
            assert_eq!(owner(&from), owner(&to), "{name}");
        }
        for dir in [from, to] {
            set_mode(&dir.path().join("deep"), 0o755);
        }
    }

    #[test]
    fn what_was_moved_away_comes_back_as_it_was() {
        let (used, had) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        fs::create_dir(used.path().join("since")).unwrap();
        fs::write(used.path().join("since/file"), "new").unwrap();
        symlink("since", used.path().join("link")).unwrap();
        drop(UnixListener::bind(used.path().join("socket")).unwrap());
        let file = || used.path().join("since/file").metadata().unwrap().ino();
        let (directory, inside) = (used.path().metadata().unwrap().ino(), file());
        moved(used.path(), had.path()).unwrap();
        assert_eq!(fs::read_dir(used.path()).unwrap().count(), 0);
        fs::write(used.path().join("log"), "old").unwrap();
        fs::create_dir(used.path().join("since")).unwrap();
        empty(used.path()).unwrap();
        moved(had.path(), used.path()).unwrap();
        assert_eq!(fs::read_dir(used.path()).unwrap().count(), 3);
        assert_eq!((used.path().metadata().unwrap().ino(), file()), (directory, inside), "the same, not a copy");
    }

    #[test]
    fn what_cannot_be_copied_is_told() {
        let to = TempDir::new().unwrap();
        let broken = contents(Path::new("/nowhere/at/all"), to.path()).unwrap_err();
        assert!(
            broken.0.starts_with("/nowhere/at/all cannot be copied to ") && broken.0.contains("No such file"),
            "{broken}"
        );
    }
}
