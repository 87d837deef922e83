//! Memcached's text protocol on a connection.

use std::io;

use heddle_load::{Arrival, Dialect, Op, Shape, memcached_answer};

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
        memcached_answer(bytes)
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

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Ns;

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
}
