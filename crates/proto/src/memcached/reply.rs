//! Writing replies.

use std::io::Write as _;

/// Appends a line: `STORED`, `END`, an error.
pub fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a number: what `incr` and `decr` return.
pub fn number(out: &mut Vec<u8>, number: u64) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{number}\r\n");
}

/// Appends an item: `VALUE <key> <flags> <bytes> [<cas unique>]` and its value.
pub fn value(out: &mut Vec<u8>, key: &[u8], flags: u32, value: &[u8], cas: Option<u64>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    let _ = write!(out, " {flags} {}", value.len());
    if let Some(cas) = cas {
        let _ = write!(out, " {cas}");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
