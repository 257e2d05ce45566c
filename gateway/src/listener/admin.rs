//! The admin listener: a Unix socket that only its owner can open.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use tokio::net::{UnixListener, UnixStream};

use super::Acceptor;
use crate::peer::PeerAddress;

/// Why the listener could not be created.
#[derive(Debug, thiserror::Error)]
pub enum AdminListenerError {
    /// Another process listens there.
    #[error("another gateway serves the admin socket {}; give this one its own with --admin-socket", .0.display())]
    InUse(PathBuf),
    /// A file that is not a socket has that name.
    #[error("{} is in the way of the admin socket, and no socket; move it, or choose another --admin-socket", .0.display())]
    InTheWay(PathBuf),
    /// The system could not bind it.
    #[error("cannot listen on the admin socket {}: {}{}", .0.display(), .1, hint(.0))]
    Bind(PathBuf, io::Error),
}

/// Adds a hint to long paths, because the length of Unix socket paths is limited.
fn hint(path: &Path) -> &'static str {
    if path.as_os_str().len() > 100 { "; choose a shorter path with --admin-socket" } else { "" }
}

/// A bound Unix socket, removed when it is dropped.
pub struct AdminListener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket's file.
    file: (u64, u64),
}

impl AdminListener {
    /// Binds with mode 0600. A stale socket that no process serves is replaced.
    pub async fn bind(path: &Path) -> Result<AdminListener, AdminListenerError> {
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(AdminListenerError::InTheWay(path.to_owned())),
            Ok(_) => match UnixStream::connect(path).await {
                Ok(_) => return Err(AdminListenerError::InUse(path.to_owned())),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(|error| AdminListenerError::Bind(path.to_owned(), error))?;
                }
                Err(error) => return Err(AdminListenerError::Bind(path.to_owned(), error)),
            },
            Err(_) => {}
        }
        // The umask makes it private from the start. Setting the mode afterwards would leave a gap.
        let before = rustix::process::umask(Mode::from_bits_truncate(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = bound.map_err(|error| AdminListenerError::Bind(path.to_owned(), error))?;
        let file = file_id(path).map_err(|error| AdminListenerError::Bind(path.to_owned(), error))?;
        Ok(AdminListener { listener, path: path.to_owned(), file })
    }
}

impl Acceptor for AdminListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, PeerAddress)> {
        let (stream, _) = self.listener.accept().await?;
        Ok((stream, PeerAddress::Unix))
    }
}

impl Drop for AdminListener {
    fn drop(&mut self) {
        // Another gateway may have bound the path since. Its socket must not be removed.
        if file_id(&self.path).is_ok_and(|found| found == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of the file at a path.
fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn s24_a_socket_of_another_gateway_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.sock");
        let first = AdminListener::bind(&path).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = AdminListener::bind(&path).await.unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
