//! The notes of ELF objects that are loaded.

/// A note, as ELF lays it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// The name of its owner, with the zero that ends it.
    pub owner: &'a [u8],
    /// What the owner calls its type.
    pub kind: u32,
    /// What it says.
    pub content: &'a [u8],
    /// Where that begins in the notes.
    pub at: usize,
}

impl Note<'_> {
    /// Returns the content's word at the byte offset `at`.
    pub fn word(&self, at: usize) -> Option<u32> {
        word(self.content, at)
    }
}

/// Returns the notes in `bytes`, up to the first that is cut off.
pub fn notes(bytes: &[u8]) -> impl Iterator<Item = Note<'_>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        // Three words, then owner and content, each padded to four bytes.
        let (owner_size, size) = (word(bytes, next)? as usize, word(bytes, next + 4)? as usize);
        let (kind, owner_at) = (word(bytes, next + 8)?, next + 12);
        let at = owner_at + owner_size.next_multiple_of(4);
        let (owner, content) =
            (bytes.get(owner_at..owner_at + owner_size)?, bytes.get(at..at + size)?);
        next = at + size.next_multiple_of(4);
        Some(Note { owner, kind, content, at })
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0ab\0\0\
                         \x07\0\0\0\x04\0\0\0\x01\0\0\0Heddle\0\0\x05\0\0\0";

    #[test]
    fn each_note_is_found_with_its_place() {
        let first = Note { owner: b"GNU\0", kind: 3, content: b"ab", at: 16 };
        let second = Note { owner: b"Heddle\0", kind: 1, content: b"\x05\0\0\0", at: 40 };
        assert_eq!(notes(TWO).collect::<Vec<_>>(), [first, second]);
        assert_eq!((second.word(0), second.word(1), first.word(0)), (Some(5), None, None));
    }

    #[test]
    fn what_is_cut_off_is_no_note() {
        for length in 20..TWO.len() {
            assert_eq!(notes(&TWO[..length]).count(), 1, "{length}");
        }
        assert_eq!(notes(&[0xff; 40]).count(), 0, "sizes beyond the end");
    }
}
