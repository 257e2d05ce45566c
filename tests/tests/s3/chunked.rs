//! Bodies in chunks (`aws-chunked`): either each has a signature that covers the one before it, or none has any.

use data_encoding::{BASE64, HEXLOWER};
use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::budget;
use fencepost_harness::http::{Answer, Client};
use sha2::{Digest, Sha256};

use crate::digests::{crc32_of, md5_of};
use crate::large::{BLOCK, Flat, block};
use crate::parsing::{code, etag};
use crate::signing::Signer;
use crate::world::{agreed, until_nothing_is_staged};

const SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const SIGNED_WITH_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
const UNSIGNED_WITH_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// The largest signed chunk: it must be received whole before any of it is used.
const MAX_SIGNED: usize = 1 << 20;

/// Signs chunks, each over the signature of the one before it; the first over the signature of the request's head.
struct Chain<'s> {
    signer: &'s Signer,
    date: String,
    previous: String,
}

impl Chain<'_> {
    fn after<'s>(signer: &'s Signer, head: &str) -> Chain<'s> {
        let rest = |name: &str| head.split_once(name).map_or("", |(_, rest)| rest);
        let line = |name: &str| rest(name).lines().next().unwrap_or_default().to_owned();
        Chain { signer, date: line("x-amz-date: "), previous: line("Signature=") }
    }

    fn chunk(&mut self, data: &[u8]) -> Vec<u8> {
        let hash = |bytes: &[u8]| HEXLOWER.encode(&Sha256::digest(bytes));
        let said = format!("{}\n{}\n{}", self.previous, hash(b""), hash(data));
        self.previous = self.signer.sign("AWS4-HMAC-SHA256-PAYLOAD", &self.date, &said);
        let line = format!("{:x};chunk-signature={}\r\n", data.len(), self.previous);
        // After the last chunk, which is empty, the trailer follows directly.
        let end: &[u8] = if data.is_empty() { b"" } else { b"\r\n" };
        [line.as_bytes(), data, end].concat()
    }

    /// A line of the trailer with its signature.
    fn trailer(&mut self, line: &str) -> Vec<u8> {
        let said = format!("{}\n{}", self.previous, HEXLOWER.encode(&Sha256::digest(format!("{line}\n"))));
        let signature = self.signer.sign("AWS4-HMAC-SHA256-TRAILER", &self.date, &said);
        format!("{line}\r\nx-amz-trailer-signature:{signature}\r\n").into_bytes()
    }
}

/// A PUT in signed chunks.
pub(crate) struct Upload<'u> {
    pieces: &'u [&'u [u8]],
    /// `name:value`
    trailer: Option<&'u str>,
    /// The announced length of all pieces.
    length: usize,
}

impl<'u> Upload<'u> {
    pub(crate) fn of(pieces: &'u [&'u [u8]], trailer: Option<&'u str>) -> Upload<'u> {
        Upload { pieces, trailer, length: pieces.iter().map(|piece| piece.len()).sum() }
    }

    /// The body in the pieces that are sent: chunks, the last chunk, the trailer, the end.
    fn body(&self, signer: &Signer, head: &str) -> Vec<Vec<u8>> {
        // An empty head, used only to compute the length.
        let date = if head.is_empty() { "x-amz-date: 20260101T000000Z\n" } else { head };
        let mut chain = Chain::after(signer, date);
        if head.is_empty() {
            chain.previous = "0".repeat(64);
        }
        let mut body: Vec<Vec<u8>> = self.pieces.iter().map(|piece| chain.chunk(piece)).collect();
        body.push(chain.chunk(b""));
        body.extend(self.trailer.map(|line| chain.trailer(line)));
        body.push(b"\r\n".to_vec());
        body
    }

    /// Sends the upload, with the body changed by `spoil`.
    fn send(&self, signer: &Signer, target: &str, spoil: impl Fn(&mut Vec<Vec<u8>>)) -> Answer {
        let (mut client, body) = self.begin(signer, target, spoil);
        // The gateway may refuse in the middle, answer and close the connection.
        let sent = client.send(&body);
        client.receive().unwrap_or_else(|error| panic!("{error} after {sent:?}"))
    }

    /// Sends the head. Returns the body to send after it.
    pub(crate) fn begin(&self, signer: &Signer, target: &str, spoil: impl Fn(&mut Vec<Vec<u8>>)) -> (Client, Vec<u8>) {
        let spoilt = |head: &str| {
            let mut body = self.body(signer, head);
            spoil(&mut body);
            body.concat()
        };
        let decoded = self.length.to_string();
        let length = spoilt("").len().to_string();
        let mut headers = vec![
            ("content-encoding", "aws-chunked"),
            ("content-length", length.as_str()),
            ("x-amz-content-sha256", if self.trailer.is_some() { SIGNED_WITH_TRAILER } else { SIGNED }),
            ("x-amz-decoded-content-length", decoded.as_str()),
        ];
        headers.extend(self.trailer.and_then(|line| line.split_once(':')).map(|(name, _)| ("x-amz-trailer", name)));
        let head = signer.head("PUT", target, &headers);
        let mut client = Client::connect(&signer.address.to_string());
        client.send(head.as_bytes()).unwrap();
        (client, spoilt(&head))
    }
}

/// Changes the first hexadecimal digit of a signature.
fn spoil_signature(chunk: &mut [u8]) {
    let text = String::from_utf8_lossy(chunk).into_owned();
    let at = text.find("signature").and_then(|at| Some(at + 1 + text[at..].find(['=', ':'])?)).expect("it is signed");
    chunk[at] = if chunk[at] == b'0' { b'1' } else { b'0' };
}

const PIECES: [&[u8]; 3] = [b"what was meant, ", b"in three pieces ", b"of text"];

#[test]
fn chunks_with_the_right_signatures_are_taken() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let (whole, crc32) = (PIECES.concat(), crc32_of(&PIECES.concat()));
    let trailer = format!("x-amz-checksum-crc32:{crc32}");
    let upload = signer.begin_upload("reports/parts");
    for (name, trailer) in [("plain", None), ("trailer", Some(trailer.as_str()))] {
        let answer = Upload::of(&PIECES, trailer).send(&signer, &format!("/reports/{name}"), |_| {});
        assert_eq!((answer.status, etag(&answer)), (200, md5_of(&whole)), "{name}: {}", answer.text());
        let part = format!("/reports/parts?partNumber=1&uploadId={upload}");
        let answer = Upload::of(&PIECES, trailer).send(&signer, &part, |_| {});
        assert_eq!((answer.status, etag(&answer)), (200, md5_of(&whole)), "{name}: {}", answer.text());
    }
    assert_eq!(Upload::of(&[], None).send(&signer, "/reports/empty", |_| {}).status, 200);
    assert_eq!(signer.complete("reports/parts", &upload, &[md5_of(&whole)]).status, 200);
    let head = signer.request("HEAD", "/reports/trailer", &[("x-amz-checksum-mode", "ENABLED")], b"");
    assert_eq!(head.header("x-amz-checksum-crc32"), Some(crc32.as_str()), "{head:?}");
    let objects = agreed(&signer, "reports");
    assert_eq!(objects.keys().collect::<Vec<_>>(), ["empty", "parts", "plain", "trailer"]);
    assert!(objects.iter().all(|(name, bytes)| if name == "empty" { bytes.is_empty() } else { *bytes == whole }));
    until_nothing_is_staged(&gateway.objects());
}

/// A description, a change to a body, and the error code of the answer.
type Spoilt = (&'static str, fn(&mut Vec<Vec<u8>>), &'static str);

/// Each was signed by the holder, and changed on the way.
const SPOILT: [Spoilt; 10] = [
    ("the signature of the first chunk", |body| spoil_signature(&mut body[0]), "BadDigest"),
    ("the signature of a chunk in the middle", |body| spoil_signature(&mut body[1]), "BadDigest"),
    ("the signature of the last chunk", |body| spoil_signature(&mut body[3]), "BadDigest"),
    ("a byte of a chunk", |body| body[1].iter_mut().rev().nth(2).into_iter().for_each(|byte| *byte ^= 1), "BadDigest"),
    ("chunks in another order", |body| body.swap(0, 1), "BadDigest"),
    ("a chunk twice", |body| body.insert(0, body[0].clone()), "BadDigest"),
    ("a chunk without its signature", |body| body[1] = b"10\r\nin three pieces \r\n".to_vec(), "IncompleteBody"),
    ("without the last chunk", |body| body.truncate(3), "IncompleteBody"),
    ("it ends after the first chunk", |body| body.truncate(1), "IncompleteBody"),
    (
        "it ends in a chunk",
        |body| {
            body.truncate(3);
            body[2].truncate(90);
        },
        "IncompleteBody",
    ),
];

#[test]
fn chunks_that_were_changed_on_their_way_change_nothing() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", b"before").status, 200);
    let upload = signer.begin_upload("reports/x");
    let part = format!("/reports/x?partNumber=1&uploadId={upload}");
    let before = (agreed(&signer, "reports"), gateway.files());
    let trailer = format!("x-amz-checksum-crc32:{}", crc32_of(&PIECES.concat()));
    for target in ["/reports/x", "/reports/new", &part] {
        for trailer in [None, Some(trailer.as_str())] {
            for (what, spoil, wanted) in SPOILT {
                let answer = Upload::of(&PIECES, trailer).send(&signer, target, spoil);
                let found = (answer.status, code(&answer));
                assert_eq!(found, (400, wanted.to_owned()), "{target}, {what}: {}", answer.text());
            }
            let right = Upload::of(&PIECES, trailer).length;
            for length in [right - 1, right + 1, 0] {
                let answer = Upload { length, ..Upload::of(&PIECES, trailer) }.send(&signer, target, |_| {});
                let found = (answer.status, code(&answer));
                assert_eq!(found, (400, "IncompleteBody".to_owned()), "{target}, {length}: {}", answer.text());
            }
        }
        assert_eq!((agreed(&signer, "reports"), gateway.files()), before, "{target}");
        until_nothing_is_staged(&gateway.objects());
    }
    let parts = signer.request("GET", &format!("/reports/x?uploadId={upload}"), &[], b"").text();
    assert!(!parts.contains("<Part>"), "{parts}");
}

#[test]
fn a_trailer_that_was_changed_on_its_way_changes_nothing() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", b"before").status, 200);
    let before = (agreed(&signer, "reports"), gateway.files());
    let trailer = format!("x-amz-checksum-crc32:{}", crc32_of(&PIECES.concat()));
    let upload = Upload::of(&PIECES, Some(&trailer));
    let wrong: [Spoilt; 4] = [
        ("its signature", |body| spoil_signature(&mut body[4]), "BadDigest"),
        ("what it says", |body| body[4]["x-amz-checksum-crc32:".len()] ^= 1, "BadDigest"),
        ("none", |body| drop(body.remove(4)), "BadDigest"),
        (
            "no signature",
            |body| {
                let line = body[4].split(|byte| *byte == b'\n').next().unwrap_or_default();
                body[4] = [line, b"\n"].concat();
            },
            "IncompleteBody",
        ),
    ];
    for (what, spoil, wanted) in wrong {
        let answer = upload.send(&signer, "/reports/x", spoil);
        assert_eq!((answer.status, code(&answer).as_str()), (400, wanted), "{what}: {}", answer.text());
    }
    // The trailer's signature is valid, but its checksum is that of other bytes.
    let other = format!("x-amz-checksum-crc32:{}", crc32_of(b"something else"));
    let answer = Upload::of(&PIECES, Some(&other)).send(&signer, "/reports/x", |_| {});
    assert_eq!((answer.status, code(&answer).as_str()), (400, "BadDigest"), "{}", answer.text());
    assert_eq!((agreed(&signer, "reports"), gateway.files()), before);
    until_nothing_is_staged(&gateway.objects());
}

#[test]
fn a_signed_chunk_is_as_large_as_may_be_held_in_memory_and_no_larger() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let mut bytes = vec![b'x'; MAX_SIGNED];
    let answer = Upload::of(&[&bytes], None).send(&signer, "/reports/x", |_| {});
    assert_eq!((answer.status, etag(&answer)), (200, md5_of(&bytes)), "{}", answer.text());
    let before = gateway.files();
    bytes.push(b'y');
    let (mut client, body) = Upload::of(&[&bytes], None).begin(&signer, "/reports/x", |_| {});
    // The beginning of a chunk announces its size.
    client.send(&body[..1000]).unwrap();
    let answer = client.receive().unwrap();
    assert_eq!((answer.status, code(&answer).as_str()), (400, "IncompleteBody"), "{}", answer.text());
    assert!(answer.text().contains("at most 1048576 bytes, not 1048577"), "{}", answer.text());
    assert!(gateway.files() == before, "nothing changed");
    until_nothing_is_staged(&gateway.objects());
}

/// Some clients send the whole body as one chunk, whatever its size.
#[test]
fn memory_stays_flat_for_one_large_chunk_without_a_signature() {
    let blocks: usize = budget::pick(160, 1024);
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/small", &vec![0; BLOCK]).status, 200);
    let flat = Flat::of(gateway.pid());
    let mut sha256 = Sha256::new();
    (0..blocks).for_each(|number| sha256.update(block(number)));
    let sum = BASE64.encode(&sha256.finalize());
    let begin = format!("{:x}\r\n", blocks * BLOCK);
    let end = format!("\r\n0\r\nx-amz-checksum-sha256:{sum}\r\n\r\n");
    let decoded = (blocks * BLOCK).to_string();
    let headers = [
        ("content-encoding", "aws-chunked"),
        ("x-amz-content-sha256", UNSIGNED_WITH_TRAILER),
        ("x-amz-decoded-content-length", decoded.as_str()),
        ("x-amz-trailer", "x-amz-checksum-sha256"),
    ];
    let id = signer.begin_upload("reports/parts");
    let part = format!("/reports/parts?partNumber=1&uploadId={id}");
    for target in ["/reports/large", &part] {
        let mut upload = signer.begin("PUT", target, &headers, begin.len() + blocks * BLOCK + end.len());
        upload.send(begin.as_bytes()).unwrap();
        for number in 0..blocks {
            upload.send(&block(number)).unwrap();
        }
        upload.send(end.as_bytes()).unwrap();
        let answer = upload.receive().unwrap();
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        assert_eq!(answer.header("x-amz-checksum-sha256"), Some(sum.as_str()), "{target}");
        flat.assert(target);
    }
    let file = gateway.objects().join("reports/large");
    assert_eq!(file.metadata().unwrap().len() as usize, blocks * BLOCK);
    let read = std::fs::read(file).unwrap();
    assert!(read.chunks(BLOCK).enumerate().all(|(number, found)| found == block(number)), "the bytes are others");
}

/// Without a `Content-Length`, only the announced decoded length shows whether chunks are missing.
#[test]
fn a_body_in_chunks_is_as_long_as_was_said() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for (said, status) in [("8", 200), ("9", 400), ("7", 400)] {
        let headers = [
            ("content-encoding", "aws-chunked"),
            ("transfer-encoding", "chunked"),
            ("x-amz-content-sha256", SIGNED),
            ("x-amz-decoded-content-length", said),
        ];
        let head = signer.head("PUT", "/reports/x", &headers);
        let mut chain = Chain::after(&signer, &head);
        let body = [chain.chunk(b"12345678"), chain.chunk(b""), b"\r\n".to_vec()].concat();
        let framed = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
        let mut client = Client::connect(&signer.address.to_string());
        client.send(head.as_bytes()).unwrap();
        let sent = client.send(&framed);
        let answer = client.receive().unwrap_or_else(|error| panic!("{error} after {sent:?}"));
        assert_eq!(answer.status, status, "{said}: {}", answer.text());
    }
    assert_eq!(agreed(&signer, "reports")["x"], b"12345678");
    until_nothing_is_staged(&gateway.objects());
}
