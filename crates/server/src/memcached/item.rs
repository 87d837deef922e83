//! An item as the store keeps it: a header, then the value.
//!
//! ```text
//! magic "mc1\0" | flags (4) | expiry in Unix milliseconds, 0 is never (8) | unique number (8) | value
//! ```
//!
//! Numbers are in little-endian order.

/// Marks items: values that were written over another protocol lack it.
const MAGIC: [u8; 4] = *b"mc1\0";
/// Bytes of the header.
const HEADER: usize = 24;

/// An item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    /// The client's bits.
    pub(super) flags: u32,
    /// When it ceases to exist, in Unix milliseconds; 0 is never.
    pub(super) expires_ms: u64,
    /// The number that `gets` returns and `cas` compares: another after each change of the value.
    pub(super) cas: u64,
    /// The client's bytes.
    pub(super) value: &'a [u8],
}

impl<'a> Item<'a> {
    /// Reads what the store has; `None` if it is not an item.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Item<'a>> {
        let (header, value) = bytes.split_first_chunk::<HEADER>()?;
        let [m0, m1, m2, m3, f0, f1, f2, f3, numbers @ ..] = *header;
        let (expires, cas) = numbers.split_first_chunk::<8>()?;
        ([m0, m1, m2, m3] == MAGIC).then_some(Item {
            flags: u32::from_le_bytes([f0, f1, f2, f3]),
            expires_ms: u64::from_le_bytes(*expires),
            cas: u64::from_le_bytes(*cas.first_chunk()?),
            value,
        })
    }

    /// The bytes to store.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.value.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.flags.to_le_bytes());
        bytes.extend_from_slice(&self.expires_ms.to_le_bytes());
        bytes.extend_from_slice(&self.cas.to_le_bytes());
        bytes.extend_from_slice(self.value);
        bytes
    }

    /// Whether it still exists at `now`, in Unix milliseconds.
    pub(super) fn is_live(&self, now: u64) -> bool {
        self.expires_ms == 0 || self.expires_ms > now
    }
}

/// The header of the dataset's items: no flags, no expiry.
pub(crate) fn dataset_header() -> Vec<u8> {
    Item { flags: 0, expires_ms: 0, cas: 1, value: &[] }.encode()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let item = Item { flags: u32::MAX, expires_ms: 1 << 40, cas: u64::MAX - 1, value: b"ab" };
        assert_eq!(Item::decode(&item.encode()), Some(item));
        assert_eq!(item.encode().len(), HEADER + 2);
        assert_eq!(dataset_header().len(), HEADER);
        assert_eq!(Item::decode(b"a value of another protocol"), None);
        assert_eq!(Item::decode(&item.encode()[..HEADER - 1]), None);
    }

    #[test]
    fn an_item_lives_until_its_expiry() {
        let until = |expires_ms| Item { flags: 0, expires_ms, cas: 1, value: &[] };
        assert!(until(0).is_live(u64::MAX));
        assert!(until(10).is_live(9) && !until(10).is_live(10));
    }
}
