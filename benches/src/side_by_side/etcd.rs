//! etcd with a fenced write as a transaction, over gRPC.
//!
//! The fence precedes the value in the same key, at a fixed width: `00000000000001000000:value`. A write compares the
//! stored bytes with its own token followed by the character after the colon. If the stored bytes are greater, the
//! fence is higher, and the transaction reads it; otherwise it puts. An absent key is not greater. One key and one put
//! is the cheapest form of a fenced write that etcd has.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use fencepost_gateway::bench::{Answered, Protocol, Workload, spread, text};

use crate::gateway::load;
use crate::grpc::{Call, Field, Grpc, fields, put_bytes, put_number};
use crate::server::{Server, free_port};
use crate::{Outcome, Peer, RESOURCES, Timing, VALUE};

const TOKEN: u64 = 1_000_000;
const TXN: &str = "/etcdserverpb.KV/Txn";
const RANGE: &str = "/etcdserverpb.KV/Range";

/// Its name in the table.
pub(crate) const ETCD: &str = "etcd";

/// Results of etcd's comparison.
const GREATER: u64 = 1;
const LESS: u64 = 2;

pub(crate) struct Etcd(Server);

impl Etcd {
    pub(crate) fn start(home: &Path) -> Result<Etcd, String> {
        let (clients, peers) = (free_port()?, free_port()?);
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(home.join("etcd")).args(["--name", "bench"]);
        command.args(["--listen-client-urls", &url(clients), "--advertise-client-urls", &url(clients)]);
        command.args(["--listen-peer-urls", &url(peers), "--initial-advertise-peer-urls", &url(peers)]);
        command.args(["--initial-cluster", &format!("bench={}", url(peers))]);
        // Room for the old revisions of a long run.
        command.args(["--quota-backend-bytes", "8589934592"]);
        command.args(["--auto-compaction-mode", "revision", "--auto-compaction-retention", "100000"]);
        command.args(["--logger", "zap", "--log-level", "error"]);
        let server = Server::start(command, clients)?;
        fill(&server).map_err(|error| format!("etcd cannot be filled: {error}"))?;
        Ok(Etcd(server))
    }

    /// The URL of a prefix in it, for a gateway.
    pub(crate) fn url(&self, prefix: &str) -> String {
        format!("etcd://{}/{prefix}", self.0.address)
    }
}

/// Writes the fence and the value of every resource, as many at a time as fit into one frame of 16 KiB.
fn fill(server: &Server) -> Result<(), String> {
    let mut stream = TcpStream::connect(server.address).map_err(|error| error.to_string())?;
    let mut grpc = Grpc::default();
    let keys: Vec<String> = (0..RESOURCES).map(name).collect();
    for some in keys.chunks(50) {
        let mut message = Vec::new();
        for key in some {
            put_bytes(&mut message, 2, &put(key, &stored(TOKEN, &text(0, VALUE))));
        }
        let (mut out, mut input) = (Vec::new(), Vec::new());
        grpc.call(TXN, &message, &mut out);
        stream.write_all(&out).map_err(|error| error.to_string())?;
        let call = loop {
            let mut piece = [0; 4096];
            let read = stream.read(&mut piece).map_err(|error| error.to_string())?;
            if read == 0 {
                return Err("it closed the connection".into());
            }
            input.extend_from_slice(&piece[..read]);
            if let Some(call) = grpc.answer(&input) {
                break call;
            }
        };
        match call {
            Call::Answered(answer) if Answer::of(&answer).is_some_and(|answer| answer.succeeded) => {}
            other => return Err(format!("{other:?}")),
        }
    }
    Ok(())
}

fn name(resource: u64) -> String {
    format!("bench/{resource}")
}

fn stored(token: u64, value: &str) -> Vec<u8> {
    format!("{token:020}:{value}").into_bytes()
}

/// `RequestOp` of a put.
fn put(key: &str, value: &[u8]) -> Vec<u8> {
    let (mut request, mut operation) = (Vec::new(), Vec::new());
    put_bytes(&mut request, 1, key.as_bytes());
    put_bytes(&mut request, 2, value);
    put_bytes(&mut operation, 2, &request);
    operation
}

/// `RequestOp` of a read.
fn get(key: &str) -> Vec<u8> {
    let (mut request, mut operation) = (Vec::new(), Vec::new());
    put_bytes(&mut request, 1, key.as_bytes());
    put_bytes(&mut operation, 1, &request);
    operation
}

/// `Compare` of the stored fence with a token: above it, or not above it.
fn compare(key: &str, result: u64, token: u64) -> Vec<u8> {
    let mut compare = Vec::new();
    put_number(&mut compare, 1, result);
    put_number(&mut compare, 2, 3);
    put_bytes(&mut compare, 3, key.as_bytes());
    // `;` follows `:`, so this is above every value under the token, and below every value under the next.
    put_bytes(&mut compare, 7, format!("{token:020};").as_bytes());
    compare
}

/// `TxnRequest`: if the fence is higher, read it; otherwise run this operation.
fn fenced(key: &str, token: u64, operation: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    put_bytes(&mut message, 1, &compare(key, GREATER, token));
    put_bytes(&mut message, 2, &get(key));
    put_bytes(&mut message, 3, operation);
    message
}

/// The relevant parts of `TxnResponse` and `RangeResponse`.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    succeeded: bool,
    /// The number of results of a transaction.
    results: usize,
    /// The number of keys that a read found.
    found: usize,
}

impl Answer {
    fn of(message: &[u8]) -> Option<Answer> {
        let mut answer = Answer { succeeded: false, results: 0, found: 0 };
        for (number, field) in fields(message)? {
            match (number, field) {
                (2, Field::Number(yes)) => answer.succeeded = yes == 1,
                (2, Field::Bytes(_)) => answer.found += 1,
                (3, Field::Bytes(_)) => answer.results += 1,
                _ => {}
            }
        }
        Some(answer)
    }
}

/// The requests of one connection.
struct Fenced {
    grpc: Grpc,
    workload: Workload,
    value: String,
    number: u64,
    sent: u64,
    expected: Answer,
}

impl Protocol for Fenced {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.sent += 1;
        let resource = spread(self.number, self.sent, RESOURCES);
        let key = name(resource);
        let stale = match self.workload {
            Workload::Stale => true,
            Workload::Mixed => self.sent % 2 == 1,
            _ => false,
        };
        let token = if stale { TOKEN - 1 } else { TOKEN };
        self.expected = Answer { succeeded: stale, results: 1, found: 0 };
        let (method, message) = match self.workload {
            Workload::Get => {
                self.expected = Answer { succeeded: false, results: 0, found: 1 };
                let mut message = Vec::new();
                put_bytes(&mut message, 1, key.as_bytes());
                (RANGE, message)
            }
            Workload::CheckedGet => (TXN, fenced(&key, token, &get(&key))),
            Workload::Txn => {
                self.expected = Answer { succeeded: true, results: 4, found: 0 };
                let keys: Vec<String> = (0..4).map(|n| name((resource + n * 2_503) % RESOURCES)).collect();
                let (mut message, value) = (Vec::new(), stored(token, &self.value));
                keys.iter().for_each(|key| put_bytes(&mut message, 1, &compare(key, LESS, token)));
                keys.iter().for_each(|key| put_bytes(&mut message, 2, &put(key, &value)));
                (TXN, message)
            }
            _ => (TXN, fenced(&key, token, &put(&key, &stored(token, &self.value)))),
        };
        self.grpc.call(method, &message, out);
    }

    fn answer(&mut self, input: &[u8]) -> Option<Answered> {
        Some(match self.grpc.answer(input)? {
            Call::Answered(message) if Answer::of(&message).as_ref() == Some(&self.expected) => Answered::Expected,
            Call::Answered(_) => Answered::Unexpected,
            Call::Failed(why) => Answered::Senseless(format!("etcd: {why}")),
        })
    }
}

impl Peer for Etcd {
    fn name(&self) -> &'static str {
        ETCD
    }

    fn offers(&self, workload: Workload) -> bool {
        use Workload::{CheckedGet, Get, Mixed, Put, Stale, Txn};
        matches!(workload, Put | Stale | Mixed | Get | CheckedGet | Txn)
    }

    fn measure(&mut self, workload: Workload, connections: usize, time: Timing) -> Result<Outcome, String> {
        let speaker = |number| Fenced {
            grpc: Grpc::default(),
            workload,
            value: text(number, VALUE),
            number,
            sent: 0,
            expected: Answer { succeeded: false, results: 0, found: 0 },
        };
        load(&[self.0.address], (0..connections as u64).map(speaker).collect(), time)
    }

    fn http(&self) -> Option<std::net::SocketAddr> {
        None
    }

    fn processes(&self) -> Vec<u32> {
        vec![self.0.process()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        // A header, `succeeded`, one result.
        assert_eq!(Answer::of(b"\x0a\x01h\x10\x01\x1a\x01r"), Some(Answer { succeeded: true, results: 1, found: 0 }));
        assert_eq!(Answer::of(b"\x0a\x01h\x1a\x01r"), Some(Answer { succeeded: false, results: 1, found: 0 }));
        // A read: a header, one key, a count.
        assert_eq!(Answer::of(b"\x0a\x01h\x12\x02kv\x20\x01"), Some(Answer { succeeded: false, results: 0, found: 1 }));
        assert_eq!(Answer::of(b"\x0a\x05h"), None);
    }

    #[test]
    fn stored_bytes_are_in_the_order_of_their_fences() {
        let above = |token: u64| format!("{token:020};").into_bytes();
        for value in ["", "x", "\u{10ffff}", ";;;"] {
            assert!(stored(34, value) < above(34), "equal is admitted");
            assert!(stored(33, value) < above(34), "lower is admitted");
            assert!(stored(35, value) > above(34), "higher is refused");
            assert!(stored(100, value) > above(99), "at any width");
        }
    }
}
