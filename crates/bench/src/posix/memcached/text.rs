//! Memcached's text protocol on a connection.

use std::io;

use heddle_load::{Arrival, Dialect, Op, Shape};

/// The longest first line of an answer.
const LONGEST_LINE: usize = 512;

/// One request at a time on each connection, as most clients do.
#[derive(Debug, Default)]
pub(crate) struct Text;

impl Dialect for Text {
    const DEPTH: usize = 1;

    fn encode(out: &mut Vec<u8>, request: &Arrival, shape: &Shape) {
        let key = shape.key(request);
        match request.op {
            Op::Get | Op::Scan => {
                out.extend_from_slice(format!("get {}\r\n", name(key)).as_bytes())
            }
            Op::Set => set(out, key, shape.value(request.op), ""),
        }
    }

    fn advance(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<bool>)> {
        let Some(line) = line(bytes)? else { return Ok((0, None)) };
        let after = line.len() + 2;
        match line {
            b"STORED" => Ok((after, Some(true))),
            // A key that is missing.
            b"END" => Ok((after, Some(false))),
            _ => match length_of_value(line) {
                // The value, an empty line's end, and END.
                Some(length) => {
                    let whole = after + length + b"\r\nEND\r\n".len();
                    match bytes.get(after + length..whole) {
                        None => Ok((0, None)),
                        Some(b"\r\nEND\r\n") => Ok((whole, Some(true))),
                        Some(_) => Err(invalid("a value without an end")),
                    }
                }
                // ERROR, CLIENT_ERROR, SERVER_ERROR, NOT_STORED
                None => Ok((after, Some(false))),
            },
        }
    }
}

/// The name of a key.
fn name(key: u64) -> String {
    format!("key-{key:08}")
}

/// Appends a SET; `options` is empty or ` noreply`.
pub(super) fn set(out: &mut Vec<u8>, key: u64, value: &[u8], options: &str) {
    let head = format!("set {} 0 0 {}{options}\r\n", name(key), value.len());
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The first line without its end; `None` if it is incomplete.
fn line(bytes: &[u8]) -> io::Result<Option<&[u8]>> {
    let end = bytes.windows(2).take(LONGEST_LINE).position(|two| two == b"\r\n");
    match end {
        None if bytes.len() > LONGEST_LINE => Err(invalid("a line without an end")),
        end => Ok(end.map(|end| &bytes[..end])),
    }
}

/// `VALUE key flags length`
fn length_of_value(line: &[u8]) -> Option<usize> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some("VALUE"), Some(_), Some(_), Some(length)) => length.parse().ok(),
        _ => None,
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("memcached sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Ns;

    fn advance(bytes: &[u8]) -> (usize, Option<bool>) {
        Text.advance(bytes).unwrap()
    }

    #[test]
    fn requests_name_their_key() {
        let shape = Shape::new(10, 1, 3);
        let encoded = |op| {
            let mut out = Vec::new();
            Text::encode(&mut out, &Arrival { at: Ns::ZERO, op, key: 7 }, &shape);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(encoded(Op::Get), "get key-00000007\r\n");
        assert_eq!(encoded(Op::Set), "set key-00000007 0 0 3\r\nabc\r\n");
    }

    #[test]
    fn answers_are_read_when_they_are_complete() {
        let value = b"VALUE key-00000007 0 5\r\nab\r\nc\r\nEND\r\n";
        for cut in 0..value.len() {
            assert_eq!(advance(&value[..cut]), (0, None), "{cut}");
        }
        assert_eq!(advance(value), (value.len(), Some(true)));
        assert_eq!(advance(b"STORED\r\nEND"), (8, Some(true)));
        assert_eq!(advance(b"END\r\n"), (5, Some(false)), "a missing key");
        assert_eq!(advance(b"SERVER_ERROR out of memory\r\n"), (28, Some(false)));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        assert!(Text.advance(b"VALUE a 0 1\r\nxyEND\r\n\r\n").is_err());
        assert!(Text.advance(&[b'x'; 600]).is_err());
        assert_eq!(advance(&[b'x'; 100]), (0, None));
    }
}
