//! `fencepost conform http`: maps, the meaning of answers, the wire, hooks, and the examples that users copy.

mod answers;
mod backups;
mod clock;
mod documented;
mod examples;
mod halves;
mod hooks;
mod maps;
mod scripted;
mod wire;

use std::path::{Path, PathBuf};

use fencepost_conformance::adapters::http::{HttpSubject, Overrides, open};
use fencepost_conformance::subject::{Broken, Request, Route, Subject};
use fencepost_conformance::{Answer, Op};
use tempfile::TempDir;

/// The beginning of a service in Python: a handler without its methods, and the server that uses it.
const SERVICE: &str = r#"
import http.server, os

class Answering(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

def serve(handler):
    http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["CONFORM_PORT"])), handler).serve_forever()
"#;

/// A map in a directory of its own.
pub(crate) struct MapFile {
    dir: TempDir,
}

impl MapFile {
    pub(crate) fn new(text: &str) -> MapFile {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("resource.toml"), text).unwrap();
        MapFile { dir }
    }

    /// A map whose directory has the program `server.py`, which goes on after [`SERVICE`].
    pub(crate) fn with_server(text: &str, server: &str) -> MapFile {
        let map = MapFile::new(text);
        std::fs::write(map.dir().join("server.py"), format!("{SERVICE}{server}")).unwrap();
        map
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("resource.toml")
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn open(&self) -> Result<HttpSubject, Broken> {
        open(&self.path(), &Overrides::default())
    }

    /// Why it cannot be opened, without the name of the directory.
    pub(crate) fn error(&self) -> String {
        match self.open() {
            Ok(_) => panic!("this map was opened:\n{}", std::fs::read_to_string(self.path()).unwrap()),
            Err(Broken(why)) => why.replace(&format!("{}/", self.dir.path().display()), ""),
        }
    }
}

pub(crate) fn request(op: &Op) -> Request<'_> {
    Request { case: "A01", seed: 7, id: 3, client: 0, route: Route::Direct, op }
}

pub(crate) fn call(subject: &HttpSubject, op: &Op) -> Answer {
    subject.call(&request(op)).unwrap()
}

/// Why an outcome is unknown.
pub(crate) fn why(answer: Answer) -> String {
    match answer {
        Answer::Unknown { why } => why,
        other => panic!("{other:?} is not unknown"),
    }
}
