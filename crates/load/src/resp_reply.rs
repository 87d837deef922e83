//! Finds the end of a RESP2 reply; a load generator needs no more of it.

use std::io;

/// Deepest nesting of arrays in a key-value server's replies.
const DEEPEST: usize = 8;

/// One whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its bytes.
    pub len: usize,
    /// Whether it is a value: neither an error nor nil.
    pub ok: bool,
}

/// The reply at the start of `bytes`; `None` while it is incomplete.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it is not RESP2.
pub fn parse(bytes: &[u8]) -> io::Result<Option<Reply>> {
    element(bytes, DEEPEST)
}

fn element(bytes: &[u8], depth: usize) -> io::Result<Option<Reply>> {
    let Some(end) = line_end(bytes)? else { return Ok(None) };
    let (line, body) = (&bytes[1..end - 2], &bytes[end..]);
    match bytes[0] {
        b'+' | b':' => Ok(Some(Reply { len: end, ok: true })),
        b'-' => Ok(Some(Reply { len: end, ok: false })),
        b'$' => match length(line)? {
            None => Ok(Some(Reply { len: end, ok: false })),
            Some(n) => Ok((body.len() >= n + 2).then_some(Reply { len: end + n + 2, ok: true })),
        },
        b'*' if depth > 0 => array(bytes, end, length(line)?.unwrap_or(0), depth),
        other => Err(bad(format!("a reply cannot begin with byte {other:#04x}"))),
    }
}

fn array(bytes: &[u8], start: usize, elements: usize, depth: usize) -> io::Result<Option<Reply>> {
    let mut len = start;
    for _ in 0..elements {
        match element(&bytes[len..], depth - 1)? {
            None => return Ok(None),
            Some(reply) => len += reply.len,
        }
    }
    Ok(Some(Reply { len, ok: true }))
}

/// The offset behind the first line's CR LF.
fn line_end(bytes: &[u8]) -> io::Result<Option<usize>> {
    match bytes.windows(2).position(|pair| pair == b"\r\n") {
        Some(0) => Err(bad("an empty line".into())),
        at => Ok(at.map(|at| at + 2)),
    }
}

/// A length; `None` for -1, which is nil.
fn length(line: &[u8]) -> io::Result<Option<usize>> {
    let text = std::str::from_utf8(line).unwrap_or("?");
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(n) if (0..=1 << 30).contains(&n) => Ok(Some(n as usize)),
        _ => Err(bad(format!("`{text}` is not a length"))),
    }
}

fn bad(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WHOLE: [(&[u8], bool); 6] = [
        (b"+OK\r\n", true),
        (b"-ERR no\r\n", false),
        (b":7\r\n", true),
        (b"$-1\r\n", false),
        (b"$3\r\na\r\n\r\n", true),
        (b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", true),
    ];

    #[test]
    fn whole_replies_end_where_they_end_and_parts_wait() {
        for (bytes, ok) in WHOLE {
            let with_more = [bytes, b"+more"].concat();
            assert_eq!(parse(&with_more).unwrap(), Some(Reply { len: bytes.len(), ok }));
            for cut in 0..bytes.len() {
                assert_eq!(parse(&bytes[..cut]).unwrap(), None, "{cut} bytes of {bytes:?}");
            }
        }
    }

    #[test]
    fn what_is_not_resp_is_an_error() {
        for bytes in [&b"GET\r\n"[..], b"$x\r\n", b"*-7\r\n", b"\r\n", &b"*1\r\n".repeat(20)] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some(reply)) = parse(&bytes) {
                prop_assert!(reply.len <= bytes.len());
            }
        }
    }
}
