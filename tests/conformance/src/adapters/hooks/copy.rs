//! Copies of a directory, as a backup makes them, and the way back.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, io};

use super::command;
use crate::subject::Broken;

/// Copies the contents of a directory into another one within `limit`. Links, holes, owners, permissions, times and
/// attributes are kept. The output of `cp` goes into a file in `output`.
pub(super) fn contents(from: &Path, to: &Path, limit: Duration, output: &Path) -> Result<(), Broken> {
    let mut cp = Command::new("cp");
    cp.arg("-a").arg(from.join(".")).arg(to).env("LC_ALL", "C").stdin(Stdio::null());
    command::run("the copy of its directory", cp, limit, &output.join("copy"))
}

/// Empties a directory. The directory itself stays.
pub(super) fn empty(directory: &Path) -> Result<(), Broken> {
    let removed = each(directory, |path, is_dir| match is_dir {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    });
    removed.map_err(|error| Broken(format!("{} cannot be emptied: {error}", directory.display())))
}

/// Moves the contents of a directory into another one of the same file system, unchanged.
pub(super) fn moved(from: &Path, to: &Path) -> Result<(), Broken> {
    let moved = each(from, |path, _| fs::rename(path, to.join(path.file_name().unwrap_or_default())));
    moved.map_err(|error| Broken(format!("{} cannot be moved to {}: {error}", from.display(), to.display())))
}

/// Calls `act` with each entry of a directory, and whether it is a directory itself.
fn each(directory: &Path, act: impl Fn(&Path, bool) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        act(&entry.path(), entry.file_type()?.is_dir())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{Seek, SeekFrom, Write};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use rustix::fs::{XattrFlags, getxattr, setxattr};
    use tempfile::TempDir;

    use super::{empty, moved};
    use crate::subject::Broken;
    use crate::wait;

    fn contents(from: &Path, to: &Path) -> Result<(), Broken> {
        copied(from, to, wait::PATIENCE)
    }

    fn copied(from: &Path, to: &Path, limit: Duration) -> Result<(), Broken> {
        let output = TempDir::new().unwrap();
        super::contents(from, to, limit, output.path())
    }

    /// An extended attribute, where a file store may keep its fence. Not every file system has them.
    fn attribute(path: &Path) -> Option<Vec<u8>> {
        let mut value = [0; 16];
        getxattr(path, "user.fence", &mut value).ok().map(|length| value[..length].to_vec())
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A directory with every kind of entry.
    fn odd() -> TempDir {
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("deep/er")).unwrap();
        fs::write(at("deep/er/file"), "inside").unwrap();
        fs::write(at("script"), "run").unwrap();
        set_mode(&at("script"), 0o750);
        let _ = setxattr(at("script"), "user.fence", b"9", XattrFlags::empty());
        fs::hard_link(at("script"), at("twin")).unwrap();
        set_mode(&at("deep"), 0o555);
        fs::write(at("empty"), "").unwrap();
        symlink("script", at("link")).unwrap();
        symlink("/nowhere/at/all", at("dangling")).unwrap();
        symlink(".", at("loop")).unwrap();
        let mut sparse = File::create(at("sparse")).unwrap();
        sparse.seek(SeekFrom::Start(64 << 20)).unwrap();
        sparse.write_all(b"end").unwrap();
        sparse.set_len(128 << 20).unwrap();
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
        assert_eq!(attribute(&at("script")), attribute(&from.path().join("script")));
        assert_eq!(at("script").metadata().unwrap().ino(), at("twin").metadata().unwrap().ino(), "one file");
        for dir in [from, to] {
            set_mode(&dir.path().join("deep"), 0o755);
        }
    }

    #[test]
    fn a_copy_belongs_to_whom_the_original_belongs() {
        let (from, to) = (odd(), TempDir::new().unwrap());
        for name in ["script", "link", "deep"] {
            // Only root can change the owner; for other users all files stay their own.
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
        let Broken(why) = contents(Path::new("/nowhere/at/all"), to.path()).unwrap_err();
        assert!(why.starts_with("the copy of its directory failed") && why.contains("No such file"), "{why}");
        // On a busy machine a small copy may end before the first look at it.
        let ended = (0..100).find_map(|_| copied(odd().path(), TempDir::new().unwrap().path(), Duration::ZERO).err());
        let Broken(why) = ended.unwrap();
        assert!(why.starts_with("the copy of its directory was ended after 0ns (`limit` in [hooks])"), "{why}");
    }
}
