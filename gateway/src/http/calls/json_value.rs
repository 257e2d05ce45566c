//! Values inside JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fencepost_core::wire::TextOrBase64;

/// A value as text if JSON represents it well, otherwise as base64.
pub(super) fn text_or_base64(body: &Bytes) -> TextOrBase64 {
    match std::str::from_utf8(body) {
        Ok(text) if is_printable_ascii(body) => TextOrBase64::Text(text.to_owned()),
        // Control characters would take six bytes each.
        Ok(text) if !text.contains(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) => {
            TextOrBase64::Text(text.to_owned())
        }
        _ => TextOrBase64::Base64(STANDARD.encode(body)),
    }
}

/// There is no early return, so that the compiler can vectorise the loop.
fn is_printable_ascii(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |printable, byte| printable & (0x20..0x7f_u8).contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_json_represents_well() {
        for text in ["", "paid", " ~\"\\", "tab\t line\r\n", "\u{e9}\u{2028}\u{1f980}"] {
            let found = text_or_base64(&Bytes::copy_from_slice(text.as_bytes()));
            assert_eq!(found, TextOrBase64::Text(text.to_owned()), "{text:?}");
        }
        for bytes in [&b"\0"[..], b"a\x1b", b"\x7f", "\u{85}".as_bytes(), b"\xff"] {
            let found = text_or_base64(&Bytes::copy_from_slice(bytes));
            assert_eq!(found, TextOrBase64::Base64(STANDARD.encode(bytes)), "{bytes:?}");
        }
    }
}
