//! The administrator's door: a Unix socket that only its owner can open.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use rustix::fs::Mode;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::Gateway;
use super::caller::{Caller, PeerAddress};
use super::permit::{Identity, Peer};

/// Connections of administrators at once; more wait until one ends.
const MAX_CONNECTIONS: usize = 16;

/// Why there is no door.
#[derive(Debug, thiserror::Error)]
pub enum AdminDoorError {
    /// Another process listens there.
    #[error("another gateway serves the admin socket {}; give this one its own with --admin-socket", .0.display())]
    InUse(PathBuf),
    /// Something else has that name.
    #[error("{} is in the way of the admin socket, and no socket; move it, or choose another --admin-socket", .0.display())]
    InTheWay(PathBuf),
    /// The system said no.
    #[error("cannot listen on the admin socket {}: {}{}", .0.display(), .1, hint(.0))]
    Bind(PathBuf, io::Error),
}

/// Paths of Unix sockets are short.
fn hint(path: &Path) -> &'static str {
    if path.as_os_str().len() > 100 { "; choose a shorter path with --admin-socket" } else { "" }
}

/// A bound Unix socket, removed when it is dropped.
pub struct AdminDoor {
    listener: UnixListener,
    path: PathBuf,
}

impl AdminDoor {
    /// Binds with mode 0600. A socket that nobody serves any more is replaced.
    pub async fn bind(path: &Path) -> Result<AdminDoor, AdminDoorError> {
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(AdminDoorError::InTheWay(path.to_owned())),
            Ok(_) => match UnixStream::connect(path).await {
                Ok(_) => return Err(AdminDoorError::InUse(path.to_owned())),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(|error| AdminDoorError::Bind(path.to_owned(), error))?;
                }
                Err(error) => return Err(AdminDoorError::Bind(path.to_owned(), error)),
            },
            Err(_) => {}
        }
        // Born private: a mode set afterwards would leave a moment for others.
        let before = rustix::process::umask(Mode::from_bits_truncate(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = bound.map_err(|error| AdminDoorError::Bind(path.to_owned(), error))?;
        Ok(AdminDoor { listener, path: path.to_owned() })
    }

    /// Serves administrators until told to stop; then those who are in finish.
    pub(super) async fn run(self, http: Builder<TokioExecutor>, gateway: Arc<Gateway>, stop: Arc<Notify>) {
        let graceful = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let accepted = async {
                let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
                self.listener.accept().await.map(|(stream, _)| (stream, place))
            };
            let (stream, place) = tokio::select! {
                accepted = accepted => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept an administrator's connection");
                        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = stop.notified() => break,
            };
            let identity = match stream.peer_cred() {
                Ok(peer) => Identity::Administrator(Peer { uid: peer.uid(), pid: peer.pid() }),
                Err(error) => {
                    tracing::warn!(%error, "an administrator's connection does not say whose it is");
                    continue;
                }
            };
            let (gateway, caller) =
                (gateway.clone(), Caller { identity, peer: PeerAddress::Unix, waits: Arc::default() });
            let service = service_fn(move |request| {
                let (gateway, caller) = (gateway.clone(), caller.clone());
                async move {
                    if !request.uri().path().starts_with("/v1/admin/") {
                        return gateway.handle(request, &caller).await;
                    }
                    // An act goes on to its end, and to its line in the audit log, also if nobody waits for it any more.
                    match tokio::spawn(async move { gateway.handle(request, &caller).await }).await {
                        Ok(answered) => answered,
                        Err(ended) => std::panic::resume_unwind(ended.into_panic()),
                    }
                }
            });
            let serving = graceful.watch(http.serve_connection(TokioIo::new(stream), service).into_owned());
            connections.spawn(async move {
                // A broken connection is its own client's business.
                let _ = serving.await;
                drop(place);
            });
        }
        drop(self);
        graceful.shutdown().await;
    }
}

impl Drop for AdminDoor {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}
