//! Values inside JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fencepost_core::wire::TextOrBase64;

/// A value as text if JSON represents it well, otherwise as base64.
pub(super) fn text_or_base64(body: &Bytes) -> TextOrBase64 {
    match std::str::from_utf8(body) {
        // Control characters would take six bytes each.
        Ok(text) if !text.contains(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) => {
            TextOrBase64::Text(text.to_owned())
        }
        _ => TextOrBase64::Base64(STANDARD.encode(body)),
    }
}
