//! The names of a program's marks, by the numbers that marks have in [`heddle_core::Event::by`]: unlike other names of
//! a page they become known while the program runs.
//!
//! A name is written before the first event that mentions it, and never changes. Two threads may write the same one at
//! the same time: both store the same bytes. Its length is stored last, and is 0 before.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// The longest name, in bytes.
pub(crate) const LONGEST: usize = 124;

/// The memory of one name.
#[repr(C)]
pub(crate) struct Name {
    len: AtomicU32,
    bytes: [AtomicU8; LONGEST],
}

impl Name {
    /// Writes the name if it is not written yet; a longer one than fits is cut.
    pub fn write(&self, text: &str) {
        if self.len.load(Ordering::Relaxed) != 0 {
            return;
        }
        let fits = (0..=text.len().min(LONGEST)).rev().find(|&end| text.is_char_boundary(end));
        let text = &text.as_bytes()[..fits.unwrap_or(0)];
        self.bytes.iter().zip(text).for_each(|(to, byte)| to.store(*byte, Ordering::Relaxed));
        self.len.store(text.len() as u32, Ordering::Release);
    }

    /// Returns its bytes; none if it is not written. They may be any.
    pub fn read(&self) -> Vec<u8> {
        let len = (self.len.load(Ordering::Acquire) as usize).min(LONGEST);
        self.bytes[..len].iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name { len: AtomicU32::new(0), bytes: [const { AtomicU8::new(0) }; LONGEST] }
    }

    #[test]
    fn a_name_is_written_once_and_cut_between_characters() {
        let (short, long) = (name(), name());
        assert_eq!(short.read(), b"");
        ["parse", "other"].into_iter().for_each(|text| short.write(text));
        assert_eq!(short.read(), b"parse");
        long.write(&("x".to_owned() + &"\u{b5}".repeat(100)));
        assert_eq!(String::from_utf8(long.read()).unwrap().chars().count(), 1 + 61);
    }

    #[test]
    fn any_length_is_read_within_the_name() {
        let hostile = name();
        hostile.len.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(hostile.read(), [0; LONGEST]);
    }
}
