//! Large objects stream: memory stays flat.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

use data_encoding::HEXLOWER;
use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::budget;
use md5::{Digest, Md5};

use crate::parsing::etag;
use crate::signing::Signer;
use crate::world::until_nothing_is_staged;

/// A peak above this is not flat.
const ALLOWED_KIB: u64 = 64 << 10;
pub(crate) const BLOCK: usize = 1 << 20;

/// The peak of resident memory since the last call, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    // 5 resets the peak.
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap()
}

/// The memory of a gateway, measured after all one-time allocations.
pub(crate) struct Flat {
    pid: u32,
    base: u64,
}

impl Flat {
    pub(crate) fn of(pid: u32) -> Flat {
        peak_kib(pid);
        Flat { pid, base: peak_kib(pid) }
    }

    /// Asserts that memory was flat since the last call.
    pub(crate) fn assert(&self, what: &str) {
        let (peak, base) = (peak_kib(self.pid), self.base);
        println!("{what}: {} MiB above {} MiB", peak.saturating_sub(base) >> 10, base >> 10);
        assert!(peak < base + ALLOWED_KIB, "{what}: {peak} KiB at the peak, {base} KiB before");
    }
}

/// A block that differs from the one before it.
pub(crate) fn block(number: usize) -> Vec<u8> {
    let mut block = vec![(number % 251) as u8; BLOCK];
    block[..8].copy_from_slice(&(number as u64).to_be_bytes());
    block
}

#[test]
fn memory_stays_flat_for_a_large_upload_download_copy_and_completion() {
    let blocks: usize = budget::pick(256, 1024);
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/small", &vec![0; BLOCK]).status, 200);
    let flat = Flat::of(gateway.pid());

    let mut md5 = Md5::new();
    let mut upload = signer.begin("PUT", "/reports/large", &[], blocks * BLOCK);
    for number in 0..blocks {
        let block = block(number);
        md5.update(&block);
        upload.send(&block).unwrap();
    }
    let answer = upload.receive().unwrap();
    let md5 = HEXLOWER.encode(&md5.finalize());
    assert_eq!((answer.status, etag(&answer)), (200, md5.clone()), "{}", answer.text());
    flat.assert("upload");

    assert_eq!(download(&signer, "/reports/large", blocks * BLOCK), md5);
    flat.assert("download");

    let copied = signer.request("PUT", "/reports/copy", &[("x-amz-copy-source", "/reports/large")], b"");
    assert_eq!(copied.status, 200, "{}", copied.text());
    flat.assert("copy");

    let id = signer.begin_upload("reports/joined");
    let mut parts = Vec::new();
    for number in 1..=2 {
        let target = format!("/reports/joined?partNumber={number}&uploadId={id}");
        let answer = signer.request("PUT", &target, &[("x-amz-copy-source", "/reports/large")], b"");
        assert_eq!(answer.status, 200, "{}", answer.text());
        parts.push(crate::parsing::element(&answer.text(), "ETag").unwrap());
    }
    let completed = signer.complete("reports/joined", &id, &parts);
    assert_eq!(completed.status, 200, "{}", completed.text());
    flat.assert("completion");
    assert_eq!(gateway.objects().join("reports/joined").metadata().unwrap().len() as usize, 2 * blocks * BLOCK);
    until_nothing_is_staged(&gateway.objects());
}

/// Downloads an object and returns its MD5.
fn download(signer: &Signer, target: &str, length: usize) -> String {
    let mut stream = TcpStream::connect(signer.address).unwrap();
    stream.write_all(signer.head("GET", target, &[]).as_bytes()).unwrap();
    let mut reader = BufReader::with_capacity(BLOCK, stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut md5 = Md5::new();
    let mut taken = 0;
    let mut block = vec![0; BLOCK];
    while taken < length {
        let read = reader.read(&mut block).unwrap();
        assert!(read > 0, "it ended at {taken} of {length}");
        md5.update(&block[..read]);
        taken += read;
    }
    HEXLOWER.encode(&md5.finalize())
}
