//! The request lines in a stream of HTTP/1.1, found without parsing the messages between them.

const METHODS: [&str; 6] = ["DELETE", "HEAD", "GET", "OPTIONS", "POST", "PUT"];

/// No request line is longer; of a longer line only the end is kept.
const LONGEST: usize = 16 << 10;

/// Reads one direction of one connection.
#[derive(Default)]
pub(super) struct RequestLines {
    line: Vec<u8>,
}

impl RequestLines {
    /// The request lines that end in these bytes, as `PUT /bucket/key?query`. A line inside a body counts too if it
    /// looks like one, so bodies must not contain any.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                found.extend(request(&self.line));
                self.line.clear();
            } else if self.line.len() > 2 * LONGEST {
                self.line.drain(..self.line.len() - LONGEST);
            }
        }
        found
    }
}

/// The request at the end of this line. A body without a line end may precede it.
fn request(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line.strip_suffix(b" HTTP/1.1\r\n")?).into_owned();
    let (before, target) = line.rsplit_once(" /")?;
    let method = METHODS.iter().find(|method| before.ends_with(*method))?;
    Some(format!("{method} /{target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_between_bodies_however_they_are_cut() {
        let stream = b"PUT /reports/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\n\xff\x00\nxGET /?list-type=2 HTTP/1.1\r\n\r\n";
        for size in [1, 3, 7, stream.len()] {
            let mut lines = RequestLines::default();
            let found: Vec<String> = stream.chunks(size).flat_map(|chunk| lines.read(chunk)).collect();
            assert_eq!(found, ["PUT /reports/a", "GET /?list-type=2"], "in pieces of {size}");
        }
    }

    #[test]
    fn a_long_body_is_not_kept() {
        let mut lines = RequestLines::default();
        for _ in 0..100 {
            assert!(lines.read(&[b'x'; 4096]).is_empty());
        }
        assert!(lines.line.len() <= 2 * LONGEST + 4096);
        assert_eq!(lines.read(b"HEAD /b HTTP/1.1\r\n"), ["HEAD /b"]);
    }
}
