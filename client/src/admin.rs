//! The calls of the admin listener, a Unix socket.

use std::path::Path;
use std::time::Duration;

use fencepost_core::wire::{
    ForceReleasedAnswer, ObjectsCheckAnswer, ObjectsCheckRequest, ObjectsCollectAnswer, ObjectsCollectRequest,
    ReloadAnswer, RotateAllRequest, RotatePrefixAnswer, RotatePrefixRequest, RotateRequest, RotatedAnswer,
};
use fencepost_core::{Resource, percent_encode_name};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, absent_is_none};
use crate::transport::{Outgoing, Transport};

/// The calls that only administrators make, over the gateway's Unix socket.
#[derive(Clone, Debug)]
pub struct Admin {
    transport: Transport,
    timeout: Duration,
}

impl Admin {
    /// Uses the socket at this path: `admin.sock` in the data directory of the gateway.
    pub fn new(socket: &Path, timeout: Duration) -> Admin {
        Admin { transport: Transport::Unix(socket.to_owned()), timeout }
    }

    /// Ends a resource's generation.
    pub async fn rotate(&self, resource: &Resource, rotation: &RotateRequest) -> Result<RotatedAnswer, Error> {
        let path = format!("/v1/admin/fences/{}/rotate", percent_encode_name(resource.as_str()));
        self.post(path, rotation).await
    }

    /// Ends the generation of existing resources with a prefix, one page at a time.
    pub async fn rotate_prefix(&self, rotation: &RotatePrefixRequest) -> Result<RotatePrefixAnswer, Error> {
        self.post("/v1/admin/rotate-prefix".to_owned(), rotation).await
    }

    /// Ends the generation of every resource.
    pub async fn rotate_all(&self, rotation: &RotateAllRequest) -> Result<RotatedAnswer, Error> {
        self.post("/v1/admin/rotate-all".to_owned(), rotation).await
    }

    /// Takes a lock from its holder, whose token is refused from then on; `None` if the lock is free.
    pub async fn force_release(&self, name: &Resource) -> Result<Option<ForceReleasedAnswer>, Error> {
        let path = format!("/v1/admin/locks/{}/force-release", percent_encode_name(name.as_str()));
        let done = self.transport.call(Outgoing::post(path, &serde_json::Map::new()), self.timeout).await;
        absent_is_none(done)?.map(|answer| answer.json()).transpose()
    }

    /// Makes the gateway reload the rules of its guards.
    pub async fn reload(&self) -> Result<ReloadAnswer, Error> {
        self.post("/v1/admin/reload".to_owned(), &serde_json::Map::new()).await
    }

    /// Compares the index of objects with the storage, one page of names.
    pub async fn check_objects(&self, asked: &ObjectsCheckRequest) -> Result<ObjectsCheckAnswer, Error> {
        self.post("/v1/admin/objects/check".to_owned(), asked).await
    }

    /// Removes stored bytes that belong to no object.
    pub async fn collect_objects(&self, asked: &ObjectsCollectRequest) -> Result<ObjectsCollectAnswer, Error> {
        self.post("/v1/admin/objects/collect".to_owned(), asked).await
    }

    async fn post<T: DeserializeOwned>(&self, path: String, body: &impl Serialize) -> Result<T, Error> {
        self.transport.call(Outgoing::post(path, body), self.timeout).await?.json()
    }
}
