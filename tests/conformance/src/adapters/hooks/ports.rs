//! Ports for programs of the resource.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::subject::Broken;

/// Below the range that Linux uses for outgoing connections, so that no connection takes a port while its program
/// restarts.
const FIRST: u32 = 20_000;

/// How many ports the range has.
const COUNT: u32 = 12_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// `count` loopback ports that are free at the moment.
pub fn free_ports(count: usize) -> Result<Vec<u16>, Broken> {
    // Concurrent runs of the suite begin at different places.
    let begin = std::process::id().wrapping_mul(97);
    let candidates = (0..COUNT).map(|_| {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        FIRST + begin.wrapping_add(step) % COUNT
    });
    let free = candidates
        .filter_map(|port| u16::try_from(port).ok())
        .filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let ports: Vec<u16> = free.take(count).collect();
    if ports.len() < count {
        return Err(Broken(format!("no {count} free ports between {FIRST} and {}", FIRST + COUNT)));
    }
    Ok(ports)
}
