//! One connection to an S3 server, with one request at a time: for large objects, and to fill a bucket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::sign::Signer;
use super::small::Answer;

pub(crate) struct Connection {
    stream: TcpStream,
    signer: Signer,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr, signer: &Signer) -> Result<Connection, String> {
        let stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Connection { stream, signer: signer.clone(), buffer: vec![0; 1 << 20] })
    }

    /// Writes an object that repeats this block `times` times.
    pub(crate) fn put(&mut self, path: &str, block: &[u8], times: usize) -> Result<(), String> {
        let length = block.len() * times;
        let head = format!("{}content-length: {length}\r\n\r\n", self.signer.head("PUT", path));
        let sent = self.stream.write_all(head.as_bytes());
        let sent = sent.and_then(|()| (0..times).try_for_each(|_| self.stream.write_all(block)));
        // A server that refuses may answer before it has read everything.
        let answered = self.answer();
        sent.map_err(|error| format!("PUT {path}: {error}, {answered:?}"))?;
        answered.map(drop)
    }

    /// Reads an object, and returns its size in bytes.
    pub(crate) fn get(&mut self, path: &str) -> Result<usize, String> {
        let head = format!("{}\r\n", self.signer.head("GET", path));
        self.stream.write_all(head.as_bytes()).map_err(|error| error.to_string())?;
        self.answer()
    }

    /// Reads an answer that must be 200, and returns the size of its body in bytes.
    fn answer(&mut self) -> Result<usize, String> {
        let mut input = Vec::new();
        let answer = loop {
            let bytes = self.read()?;
            input.extend_from_slice(&self.buffer[..bytes]);
            if let Some(answer) = Answer::read(&input) {
                break answer;
            }
        };
        if answer.status != 200 {
            return Err(format!("the answer was {}", String::from_utf8_lossy(&input)));
        }
        let mut here = input.len() - answer.head;
        while here < answer.length {
            here += self.read()?;
        }
        Ok(here)
    }

    fn read(&mut self) -> Result<usize, String> {
        match self.stream.read(&mut self.buffer).map_err(|error| error.to_string())? {
            0 => Err("the server closed the connection before the end of its answer".to_owned()),
            bytes => Ok(bytes),
        }
    }
}
