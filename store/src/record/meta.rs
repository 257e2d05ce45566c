//! The store's own record.

use bytes::{BufMut, Bytes, BytesMut};
use fencepost_core::Issuer;

use super::{RECORD_FORMAT, Reader, Undecodable};

/// The store's own record: identity, base generation and guard mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The store's format.
    pub format: u32,
    /// Chosen at random when the store was created.
    pub store_id: [u8; 16],
    /// No resource is in a lower generation.
    pub base_generation: u32,
    /// No resource has ever been in a higher generation.
    pub highest_generation: u32,
    /// SHA-256 of the mapping.
    pub mapping_hash: [u8; 32],
    /// The mapping as text, for messages.
    pub mapping_text: String,
}

impl Meta {
    /// Encodes the record.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64 + self.mapping_text.len());
        out.put_u8(RECORD_FORMAT);
        out.put_u32_le(self.format);
        out.put_slice(&self.store_id);
        out.put_u32_le(self.base_generation);
        out.put_slice(&self.mapping_hash);
        out.put_u32_le(u32::try_from(self.mapping_text.len()).unwrap_or(0));
        out.put_slice(self.mapping_text.as_bytes());
        out.put_u32_le(self.highest_generation);
        out.freeze()
    }

    /// Decodes a record.
    pub fn decode(bytes: &Bytes) -> Result<Meta, Undecodable> {
        let mut input = Reader::new(bytes)?;
        let format = input.u32()?;
        let store_id = input.array()?;
        let base_generation = input.u32()?;
        let mapping_hash = input.array()?;
        let length = input.u32()?;
        let mapping_text = input.text(length as usize)?;
        // The first stores could not rotate, and did not write this field.
        let highest_generation = if input.is_empty() { base_generation } else { input.u32()? };
        Ok(Meta { format, store_id, base_generation, highest_generation, mapping_hash, mapping_text })
    }

    /// The issuer of tokens that the built-in lock service numbers.
    pub(crate) fn issuer(&self) -> Issuer {
        let id: String = self.store_id.iter().map(|byte| format!("{byte:02x}")).collect();
        Issuer::new(&format!("fencepost:{id}")).unwrap_or_else(|_| unreachable!("hexadecimal digits make a label"))
    }
}
