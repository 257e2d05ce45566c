//! A fast JSON writer, for answers that are sent at high rates.
//!
//! `serde_json` examines every byte of every string for characters to escape. Most strings here need no escaping, which
//! can be checked sixteen bytes at a time.

use serde::Serialize;

/// A JSON object, written field by field.
pub(crate) struct Object(Vec<u8>);

impl Object {
    pub(crate) fn with_capacity(bytes: usize) -> Object {
        let mut out = Vec::with_capacity(bytes);
        out.push(b'{');
        Object(out)
    }

    fn name(&mut self, name: &'static str) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    /// Writes a string field, if there is a value.
    pub(crate) fn text(&mut self, name: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.name(name);
            if is_plain(text.as_bytes()) {
                self.0.push(b'"');
                self.0.extend_from_slice(text.as_bytes());
                self.0.push(b'"');
            } else {
                // Writing to a Vec cannot fail.
                let _ = serde_json::to_writer(&mut self.0, text);
            }
        }
    }

    /// Writes a number field, if there is a value.
    pub(crate) fn number(&mut self, name: &'static str, number: Option<u64>) {
        if let Some(number) = number {
            self.name(name);
            self.0.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
    }

    /// Writes a field of any other type.
    pub(crate) fn value(&mut self, name: &'static str, value: &impl Serialize) {
        self.name(name);
        // Writing to a Vec cannot fail.
        let _ = serde_json::to_writer(&mut self.0, value);
    }

    /// Writes a field with a list of objects.
    pub(crate) fn list(&mut self, name: &'static str, objects: impl Iterator<Item = Object>) {
        self.name(name);
        self.0.push(b'[');
        for (at, object) in objects.enumerate() {
            if at > 0 {
                self.0.push(b',');
            }
            self.0.extend(object.end());
        }
        self.0.push(b']');
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

/// Returns whether no byte needs escaping. There is no early return, so that the compiler can vectorise the loop.
fn is_plain(text: &[u8]) -> bool {
    !text.iter().fold(false, |escaped, byte| escaped | (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\'))
}
