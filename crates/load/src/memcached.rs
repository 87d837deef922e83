//! memcached's text protocol on a connection.

use super::arrivals::Arrival;
use super::mix::Op;
use super::request::Shape;
use super::stream::Dialect;
use heddle_proto::udp::id_key;
use std::io;

/// The longest value of an answer.
const LONGEST_VALUE: usize = 1 << 30;
/// The longest first line of an answer.
const LONGEST_LINE: usize = 512;

/// memcached's text protocol, pipelined: an open loop does not wait for earlier answers. There is no SCAN: the
/// options reject it.
#[derive(Debug, Default)]
pub struct Memcached;

impl Dialect for Memcached {
    const DEPTH: usize = usize::MAX;

    fn encode(out: &mut Vec<u8>, request: &Arrival, shape: &Shape) {
        let key = id_key(shape.key(request));
        if request.op != Op::Set {
            [&b"get "[..], &key, b"\r\n"].iter().for_each(|part| out.extend_from_slice(part));
            return;
        }
        let value = shape.value(request.op);
        let sizes = format!(" 0 0 {}\r\n", value.len());
        [&b"set "[..], &key, sizes.as_bytes(), value, b"\r\n"]
            .iter()
            .for_each(|part| out.extend_from_slice(part));
    }

    fn advance(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<bool>)> {
        memcached_answer(bytes)
    }
}

/// Finds the end of an answer to a `get` of one key or to a `set`: where it is, and whether the request succeeded; a
/// missing key is a failure. Returns `(0, None)` while the answer is incomplete.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it is not memcached's text protocol.
pub fn memcached_answer(bytes: &[u8]) -> io::Result<(usize, Option<bool>)> {
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
        (Some("VALUE"), Some(_), Some(_), Some(length)) => {
            length.parse().ok().filter(|length| *length <= LONGEST_VALUE)
        }
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
    use proptest::prelude::*;

    fn advance(bytes: &[u8]) -> (usize, Option<bool>) {
        memcached_answer(bytes).unwrap()
    }

    #[test]
    fn requests_name_their_key() {
        let shape = Shape::new(10, 1, 3);
        let encoded = |op| {
            let mut out = Vec::new();
            Memcached::encode(&mut out, &Arrival { at: Ns::ZERO, op, key: 7 }, &shape);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(encoded(Op::Get), "get key:000000000007\r\n");
        assert_eq!(encoded(Op::Set), "set key:000000000007 0 0 3\r\nabc\r\n");
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
        assert!(memcached_answer(b"VALUE a 0 1\r\nxyEND\r\n\r\n").is_err());
        assert!(memcached_answer(&[b'x'; 600]).is_err());
        let huge = format!("VALUE a 0 {}\r\n", usize::MAX);
        assert_eq!(advance(huge.as_bytes()), (huge.len(), Some(false)));
        assert_eq!(advance(&[b'x'; 100]), (0, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((consumed, _)) = memcached_answer(&bytes) {
                prop_assert!(consumed <= bytes.len());
            }
        }
    }
}
