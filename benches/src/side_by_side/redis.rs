//! Redis with `appendfsync always`, and the same check in Lua.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use fencepost_gateway::bench::{Answered, Protocol, Workload, spread, text};

use crate::gateway::load;
use crate::server::{Server, free_port};
use crate::{Outcome, Peer, RESOURCES, Timing, VALUE};

/// The fence and the value in one hash; the script is atomic, and its writes are in one entry of the log.
const SCRIPT: &str = "local fence = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') \
                      if tonumber(ARGV[1]) < fence then return fence end \
                      redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2]) return 0";

const TOKEN: u64 = 1_000_000;

pub(crate) struct Redis {
    server: Server,
    script: String,
}

impl Redis {
    pub(crate) fn start(home: &Path) -> Result<Redis, String> {
        let (port, directory) = (free_port()?, home.join("redis"));
        std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ]);
        command.args(["--save", "", "--daemonize", "no", "--loglevel", "warning", "--dir"]).arg(directory);
        let server = Server::start(command, port)?;
        let mut stream = TcpStream::connect(server.address).map_err(|error| error.to_string())?;
        let mut load = Vec::new();
        command_of(&mut load, &["SCRIPT", "LOAD", SCRIPT]);
        stream.write_all(&load).map_err(|error| error.to_string())?;
        let mut answer = [0; 256];
        let read = stream.read(&mut answer).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&answer[..read]).into_owned();
        let script = text.lines().nth(1).map(str::to_owned).ok_or(format!("Redis took no script: {text}"))?;
        fill(&mut stream, &script).map_err(|error| format!("Redis cannot be filled: {error}"))?;
        Ok(Redis { server, script })
    }
}

/// Writes the fence and the value of every resource.
fn fill(stream: &mut TcpStream, script: &str) -> std::io::Result<()> {
    let value = text(0, VALUE);
    for resource in 0..RESOURCES {
        let mut command = Vec::new();
        command_of(&mut command, &["EVALSHA", script, "1", &name(resource), &TOKEN.to_string(), &value]);
        stream.write_all(&command)?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer)?;
        if answer != *b":0\r\n" {
            return Err(std::io::Error::other("a write was refused"));
        }
    }
    Ok(())
}

fn name(resource: u64) -> String {
    format!("bench/{resource}")
}

fn command_of(out: &mut Vec<u8>, parts: &[&str]) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "*{}\r\n", parts.len());
    for part in parts {
        let _ = write!(out, "${}\r\n{part}\r\n", part.len());
    }
}

struct Resp {
    workload: Workload,
    script: String,
    value: String,
    number: u64,
    sent: u64,
    /// The expected answer: 0 if the write is applied, otherwise the fence.
    expected: u64,
}

impl Protocol for Resp {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.sent += 1;
        let resource = spread(self.number, self.sent, RESOURCES);
        if self.workload == Workload::Get {
            return command_of(out, &["HMGET", &name(resource), "fence", "value"]);
        }
        let stale = match self.workload {
            Workload::Stale => true,
            Workload::Mixed => self.sent % 2 == 1,
            _ => false,
        };
        self.expected = if stale { TOKEN } else { 0 };
        let token = (if stale { TOKEN - 1 } else { TOKEN }).to_string();
        command_of(out, &["EVALSHA", &self.script, "1", &name(resource), &token, &self.value]);
    }

    fn answer(&mut self, input: &[u8]) -> Option<Answered> {
        if self.workload == Workload::Get {
            return found(input);
        }
        let line = std::str::from_utf8(input.strip_suffix(b"\r\n")?).ok()?;
        let number = line.strip_prefix(':').and_then(|number| number.parse().ok());
        Some(if number == Some(self.expected) { Answered::Expected } else { Answered::Unexpected })
    }
}

/// Checks for a complete answer with a fence and a value.
fn found(input: &[u8]) -> Option<Answered> {
    let head = format!("*2\r\n$7\r\n{TOKEN}\r\n${VALUE}\r\n").into_bytes();
    let known = input.len().min(head.len());
    if input[..known] != head[..known] {
        return Some(Answered::Unexpected);
    }
    (input.len() == head.len() + VALUE + 2).then_some(Answered::Expected)
}

impl Peer for Redis {
    fn name(&self) -> &'static str {
        "Redis"
    }

    fn offers(&self, workload: Workload) -> bool {
        matches!(workload, Workload::Put | Workload::Stale | Workload::Mixed | Workload::Get)
    }

    fn measure(&mut self, workload: Workload, connections: usize, time: Timing) -> Result<Outcome, String> {
        let speaker = |number| Resp {
            workload,
            script: self.script.clone(),
            value: text(number, VALUE),
            number,
            sent: 0,
            expected: 0,
        };
        load(&[self.server.address], (0..connections as u64).map(speaker).collect(), time)
    }

    fn http(&self) -> Option<std::net::SocketAddr> {
        None
    }

    fn processes(&self) -> Vec<u32> {
        vec![self.server.process()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_over_when_fence_and_value_are_there() {
        let whole = format!("*2\r\n$7\r\n1000000\r\n$256\r\n{}\r\n", text(1, 256)).into_bytes();
        for end in 0..whole.len() {
            assert_eq!(found(&whole[..end]), None, "{end}");
        }
        assert_eq!(found(&whole), Some(Answered::Expected));
        assert_eq!(found(b"*2\r\n$-1\r\n$-1\r\n"), Some(Answered::Unexpected));
    }
}
