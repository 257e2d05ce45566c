//! The reference behind HTTP on loopback, reached through a map like any other service.

mod front;
mod request;

use std::io::Write;
use std::sync::Arc;

use tempfile::TempPath;

use super::{Bug, Service, Setup};
use crate::adapters::http::{self, HttpSubject, Overrides};
use crate::answer::Answer;
use crate::manifest::Manifest;
use crate::proxy::Proxy;
use crate::subject::{Around, Begun, Broken, Hook, Part, Request, Subject};
use front::Front;

/// A [`Service`] over HTTP. Its hooks act directly in this process.
pub struct OverHttp {
    http: HttpSubject,
    front: Arc<Front>,
    _map: TempPath,
}

impl OverHttp {
    /// A service with this setup and bug; its pauses are drawn from the seed.
    pub fn new(setup: Setup, bug: Option<Bug>, seed: u64) -> Result<OverHttp, Broken> {
        let broken = |error: std::io::Error| Broken(format!("the reference cannot be served over HTTP: {error}"));
        let front = Front::start(Service::new(setup, bug, seed)).map_err(broken)?;
        let mut file = tempfile::Builder::new().suffix(".toml").tempfile().map_err(broken)?;
        file.write_all(map(setup, front.port()).as_bytes()).map_err(broken)?;
        let path = file.into_temp_path();
        let http = http::open(&path, &Overrides::default())?;
        Ok(OverHttp { http, front, _map: path })
    }
}

impl Drop for OverHttp {
    fn drop(&mut self) {
        self.front.end();
    }
}

impl Subject for OverHttp {
    fn describe(&self) -> String {
        format!("{} over HTTP", self.front.service().describe())
    }

    fn manifest(&self) -> &Manifest {
        self.http.manifest()
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        self.http.call(request)
    }

    fn has(&self, hook: Hook) -> bool {
        self.front.service().has(hook)
    }

    fn hook(&self, hook: Hook) -> Result<(), Broken> {
        self.front.service().hook(hook)?;
        if matches!(hook, Hook::Kill | Hook::Restart | Hook::Reset | Hook::Restore) {
            self.front.cut();
        }
        Ok(())
    }

    fn begin(&self, request: &Request<'_>, part: Part) -> Option<Result<Box<dyn Begun>, Broken>> {
        self.http.begin(request, part)
    }

    fn bypasses(&self) -> Vec<Around> {
        self.http.bypasses()
    }

    fn bypass(&self, way: usize, request: &Request<'_>) -> Result<Answer, Broken> {
        self.http.bypass(way, request)
    }

    fn proxy(&self) -> Option<&Proxy> {
        self.http.proxy()
    }
}

fn map(setup: Setup, port: u16) -> String {
    let template = include_str!("map.toml").replace("PORT", &port.to_string());
    setup.promises().iter().fold(template, |map, (name, word)| map.replace(&name.to_uppercase(), word))
}
