//! How requests are framed in a stream: each has its length in a header.

use std::io;

/// Byte order of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Most significant first, as networks do.
    Big,
    /// Least significant first.
    Little,
}

/// Where a message has its length, and what else its header holds. All numbers are bytes.
///
/// ```
/// use heddle_steer::hook::stream::Framing;
/// // [length of the payload: 4][tag: 8][payload]
/// let framing = Framing::length_prefix(4).with_header(12).with_tag(4);
/// assert_eq!(framing.total(100), Some(112));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Offset of the length in a message.
    pub length_offset: u32,
    /// Size of the length field: 1, 2, 4 or 8.
    pub length_size: u32,
    /// Its byte order.
    pub order: ByteOrder,
    /// Whether the length includes the header, or only what follows it.
    pub counts_header: bool,
    /// Size of the header: everything before the payload, where the policy's window begins.
    pub header: u32,
    /// Offset in the header at which Heddle writes the connection a request came from: 8 bytes, the
    /// connection's `SO_COOKIE` in native byte order. It overwrites what the client wrote there, so a worker
    /// can trust it.
    pub tag: Option<u32>,
    /// The longest message, header included. A client that announces a longer one is disconnected.
    pub most: u32,
}

impl Framing {
    /// The default for the longest message. The kernel itself refuses messages larger than the receive buffer
    /// of their socket, 128 KiB and more by default.
    pub const MOST: u32 = 64 << 10;

    /// A length of `size` bytes in network order at the very front, counting what follows it.
    #[must_use]
    pub const fn length_prefix(size: u32) -> Self {
        Self {
            length_offset: 0,
            length_size: size,
            order: ByteOrder::Big,
            counts_header: false,
            header: size,
            tag: None,
            most: Self::MOST,
        }
    }

    /// Sets the total size of the header to `header` bytes.
    #[must_use]
    pub const fn with_header(self, header: u32) -> Self {
        Self { header, ..self }
    }

    /// Puts the connection's cookie at `offset`.
    #[must_use]
    pub const fn with_tag(self, offset: u32) -> Self {
        Self { tag: Some(offset), ..self }
    }

    /// Returns the length of a message whose length field is `number`; `None` if such a message is refused.
    #[must_use]
    pub fn total(&self, number: u64) -> Option<u32> {
        let total = number.checked_add(self.added().into())?;
        let fits = (u64::from(self.header)..=u64::from(self.most)).contains(&total);
        u32::try_from(total).ok().filter(|_| fits)
    }

    /// Returns the length field from a message's first bytes; `None` if there are too few yet.
    #[must_use]
    pub fn number(&self, message: &[u8]) -> Option<u64> {
        let at = usize::try_from(self.length_offset).ok()?;
        let end = at.checked_add(usize::try_from(self.length_size).ok()?)?;
        let bytes = message.get(at..end)?;
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(match self.order {
            ByteOrder::Big => bytes.iter().fold(0, add),
            ByteOrder::Little => bytes.iter().rev().fold(0, add),
        })
    }

    fn added(&self) -> u32 {
        if self.counts_header { 0 } else { self.header }
    }

    /// Returns `EINVAL` with a reason if it is invalid.
    pub(super) fn check(&self) -> io::Result<()> {
        let within =
            |offset: u32, size: u32| offset.checked_add(size).is_some_and(|end| end <= self.header);
        let wrong = if ![1, 2, 4, 8].contains(&self.length_size) {
            "the length must take 1, 2, 4 or 8 bytes"
        } else if !within(self.length_offset, self.length_size) {
            "the length must lie in the header"
        } else if self.tag.is_some_and(|tag| !within(tag, 8)) {
            "the tag must lie in the header, 8 bytes of it"
        } else if self.tag.is_some_and(|tag| self.overlaps(tag)) {
            "the tag must not lie on the length"
        } else if self.most < self.header || self.most > 1 << 30 {
            "the longest message must have room for the header, and no more than 1 GiB"
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("framing: {wrong}")))
    }

    fn overlaps(&self, tag: u32) -> bool {
        tag < self.length_offset + self.length_size && self.length_offset < tag + 8
    }

    /// What follows the two places in `struct framing` of `bpf/include/stream.h`.
    pub(super) fn constants(&self) -> [u32; 8] {
        [
            self.length_offset,
            self.length_size,
            u32::from(self.order == ByteOrder::Big),
            self.added(),
            self.header,
            self.most,
            u32::from(self.tag.is_some()),
            self.tag.unwrap_or(0),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_both_orders_and_all_sizes() {
        let bytes = [0xff, 1, 2, 3, 4, 5, 6, 7, 8];
        for (size, big, little) in [
            (1, 1, 1),
            (2, 0x0102, 0x0201),
            (4, 0x0102_0304, 0x0403_0201),
            (8, 0x0102_0304_0506_0708, 0x0807_0605_0403_0201),
        ] {
            let framing = Framing { length_offset: 1, ..Framing::length_prefix(size) };
            assert_eq!(framing.number(&bytes), Some(big));
            let framing = Framing { order: ByteOrder::Little, ..framing };
            assert_eq!(framing.number(&bytes), Some(little));
            assert_eq!(framing.number(&bytes[..size as usize]), None);
        }
    }

    #[test]
    fn lengths_out_of_range_are_refused() {
        let framing = Framing { most: 100, ..Framing::length_prefix(8).with_header(10) };
        assert_eq!(
            [0, 90, 91, u64::MAX].map(|n| framing.total(n)),
            [Some(10), Some(100), None, None]
        );
        let framing = Framing { counts_header: true, ..framing };
        assert_eq!([9, 10, 100, 101].map(|n| framing.total(n)), [None, Some(10), Some(100), None]);
    }

    #[test]
    fn invalid_framings_are_refused() {
        let good = Framing::length_prefix(4).with_header(12);
        good.with_tag(4).check().unwrap();
        for (bad, why) in [
            (Framing { length_size: 3, ..good }, "1, 2, 4 or 8"),
            (Framing { length_offset: 9, ..good }, "in the header"),
            (Framing { length_offset: u32::MAX, ..good }, "in the header"),
            (good.with_tag(5), "8 bytes"),
            (good.with_tag(3), "on the length"),
            (Framing { most: 11, ..good }, "room"),
            (Framing { most: u32::MAX, ..good }, "room"),
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(why), "{bad:?}: {error}");
        }
    }
}
