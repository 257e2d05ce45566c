//! An engine under test, in a place of its own.

use std::sync::Arc;
use std::time::Duration;

use fencepost_remote::ServerUrl;
use fencepost_store::engine::Engine;
use fencepost_store::engine_check::Check;
use fencepost_store::engine_check::records::Records;
use fencepost_store::engines::{EngineKind, EngineOptions, Place};
use tempfile::TempDir;

use crate::servers;

pub(crate) struct Bench {
    kind: &'static EngineKind,
    place: Place,
    /// Removed with the bench.
    _dir: Option<TempDir>,
}

impl Bench {
    /// A directory, or a schema or prefix on the server that all cases share.
    pub(crate) fn of(kind: &'static EngineKind) -> Bench {
        if !kind.is_shared() {
            let dir = TempDir::new().unwrap();
            return Bench { kind, place: Place::Directory(dir.path().to_owned()), _dir: Some(dir) };
        }
        let server = match kind.schemes {
            ["etcd", ..] => ServerUrl::parse(&format!("etcd://{}", servers::etcd().address())).unwrap(),
            ["postgres", ..] => ServerUrl::parse(&servers::postgres().url()).unwrap(),
            other => panic!("no server is started for {other:?}: add it to servers.rs"),
        };
        let scratch = kind.scratch.expect("an engine on a server has scratch places");
        Bench { kind, place: Place::Server((scratch.at)(&server, &servers::new_name())), _dir: None }
    }

    /// Opens the engine. A durable one still has its earlier contents, and a shared one may be open already.
    pub(crate) async fn open(&self) -> Records {
        let options = EngineOptions {
            cache_bytes: 1 << 20,
            write_buffer_bytes: 4 << 20,
            free_space_floor: 0,
            ..EngineOptions::default()
        };
        self.open_with(&options).await
    }

    pub(crate) async fn open_with(&self, options: &EngineOptions) -> Records {
        Records::new((self.kind.open)(&self.place, options).await.unwrap(), "")
    }

    /// Two gateways over the same records.
    pub(crate) async fn pair(&self) -> [Records; 2] {
        [self.open().await, self.open().await]
    }

    /// A check of the engine over three gateways.
    pub(crate) async fn check(&self, stress: Duration) -> Check {
        let first = self.engine().await;
        let gateways = match self.kind.is_shared() {
            true => [first, self.engine().await, self.engine().await],
            // It has one owner.
            false => [first.clone(), first.clone(), first],
        };
        Check::new(gateways, stress)
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        (self.kind.open)(&self.place, &EngineOptions { free_space_floor: 0, ..EngineOptions::default() }).await.unwrap()
    }

    pub(crate) fn is_on_a_server(&self) -> bool {
        self.kind.is_shared()
    }

    /// The URL of a place on a server.
    pub(crate) fn url(&self) -> &ServerUrl {
        match &self.place {
            Place::Server(url) => url,
            Place::Directory(path) => panic!("{} is a directory", path.display()),
        }
    }
}
