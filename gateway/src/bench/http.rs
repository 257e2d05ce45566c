//! The load for the gateway: requests of a workload as plain HTTP/1.1.

use std::io::Write as _;
use std::num::NonZeroU64;

use fencepost_core::{Presented, Token};

use super::load::{Answered, Protocol};
use super::spread::{spread, text};
use super::workload::Workload;

/// The token of the load; a stale one is one below.
const TOKEN: u64 = 1_000_000;

/// One connection's requests.
pub struct Http {
    workload: Workload,
    resources: u64,
    prefix: String,
    value: String,
    /// This connection's number, and how many requests it has sent.
    number: u64,
    sent: u64,
    expected: u16,
    /// The lease of the lock to release next.
    lease: Option<String>,
}

impl Http {
    /// Requests over this many resources, whose names begin with the prefix. Each is a key with a value of `value`
    /// bytes.
    pub fn new(workload: Workload, number: u64, resources: u64, value: usize, prefix: &str) -> Http {
        Http {
            workload,
            resources: resources.max(1),
            prefix: prefix.to_owned(),
            value: text(number, value),
            number,
            sent: 0,
            expected: 200,
            lease: None,
        }
    }

    /// Continues as if this many requests had been sent, so that another measurement uses other resources.
    pub fn starting_at(self, sent: u64) -> Http {
        Http { sent, ..self }
    }

    /// The credentials with which every resource is written before the load.
    pub fn credentials() -> Presented {
        let number = NonZeroU64::new(TOKEN).unwrap_or(NonZeroU64::MIN);
        Presented { token: Token::from_parts(0, number), holder: None, issuer: None }
    }

    fn key(&self, resource: u64) -> String {
        format!("{}{resource}", self.prefix)
    }
}

fn transaction(keys: &[String], value: &str) -> String {
    let tokens: Vec<_> = keys.iter().map(|key| format!("\"{key}\":\"{TOKEN}\"")).collect();
    let puts: Vec<_> = keys.iter().map(|key| format!("{{\"put\":\"{key}\",\"text\":\"{value}\"}}")).collect();
    format!("{{\"tokens\":{{{}}},\"then\":[{}]}}", tokens.join(","), puts.join(","))
}

impl Protocol for Http {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.sent += 1;
        let resource = spread(self.number, self.sent, self.resources);
        let kv = |http: &Http| format!("/v1/kv/{}", http.key(resource));
        self.expected = match self.workload {
            Workload::Put => {
                request(out, "PUT", &kv(self), Some(TOKEN), &self.value);
                204
            }
            Workload::Stale => {
                request(out, "PUT", &kv(self), Some(TOKEN - 1), &self.value);
                409
            }
            Workload::Mixed => {
                let good = self.sent.is_multiple_of(2);
                request(out, "PUT", &kv(self), Some(if good { TOKEN } else { TOKEN - 1 }), &self.value);
                if good { 204 } else { 409 }
            }
            Workload::Get => {
                request(out, "GET", &kv(self), None, "");
                200
            }
            Workload::CheckedGet => {
                request(out, "GET", &kv(self), Some(TOKEN), "");
                200
            }
            Workload::Claim => {
                request(out, "POST", &format!("/v1/claim/{}", self.key(resource)), Some(TOKEN), "");
                200
            }
            Workload::Txn => {
                let keys: Vec<_> = (0..4).map(|n| self.key((resource + n * 2_503) % self.resources)).collect();
                request(out, "POST", "/v1/txn", None, &transaction(&keys, &self.value));
                200
            }
            Workload::Lock => {
                // Each connection has a lock of its own.
                let path = format!("/v1/locks/{}lock/{}", self.prefix, self.number);
                match self.lease.take() {
                    Some(lease) => {
                        request(out, "DELETE", &format!("{path}?lease={lease}"), None, "");
                        204
                    }
                    None => {
                        let holder = format!("bench#{}-{}", self.number, self.sent);
                        let body = format!("{{\"holder\":\"{holder}\",\"ttl_ms\":60000,\"wait_ms\":60000}}");
                        request(out, "POST", &path, None, &body);
                        201
                    }
                }
            }
            Workload::Healthz => {
                request(out, "GET", "/healthz", None, "");
                200
            }
        };
    }

    fn answer(&mut self, input: &[u8]) -> Option<Answered> {
        let (status, body) = parse(input)?;
        if self.workload == Workload::Lock && self.expected == 201 {
            let text = std::str::from_utf8(body).unwrap_or_default();
            self.lease = text.split("\"lease\":\"").nth(1).and_then(|rest| rest.get(..32)).map(str::to_owned);
            return Some(match self.lease {
                Some(_) => Answered::Part,
                None => Answered::Senseless(format!("no lock: {status} {text}")),
            });
        }
        Some(if status == self.expected { Answered::Expected } else { Answered::Unexpected })
    }
}

fn request(out: &mut Vec<u8>, method: &str, path: &str, token: Option<u64>, body: &str) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    if let Some(token) = token {
        let _ = write!(out, "fencing-token: {token}\r\n");
    }
    if !body.is_empty() || method == "POST" {
        let _ = write!(out, "content-length: {}\r\n", body.len());
    }
    let _ = write!(out, "\r\n{body}");
}

/// Status and body, once the whole answer has arrived.
fn parse(input: &[u8]) -> Option<(u16, &[u8])> {
    let head = input.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&input[..head]).ok()?;
    let status = text.get(9..12)?.parse().ok()?;
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(Some(0), |digits| digits.parse().ok())?;
    Some((status, input.get(head..head + length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_all_of_it_is_there() {
        let whole = b"HTTP/1.1 409 Conflict\r\ncontent-length: 4\r\nfence: 7\r\n\r\nbody";
        for end in 0..whole.len() {
            assert!(parse(&whole[..end]).is_none(), "{end}");
        }
        assert_eq!(parse(whole), Some((409, &b"body"[..])));
        assert_eq!(parse(b"HTTP/1.1 204 No Content\r\nfence: 7\r\n\r\n"), Some((204, &b""[..])));
    }
}
