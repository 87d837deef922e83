//! RESP on a connection, as any client speaks it.

use super::arrivals::Arrival;
use super::mix::Op;
use super::request::Shape;
use super::resp_reply;
use super::stream::Dialect;
use heddle_proto::udp::id_key;
use std::io;

/// RESP, pipelined: an open loop does not wait for earlier answers.
#[derive(Debug, Default)]
pub struct Resp;

impl Dialect for Resp {
    const DEPTH: usize = usize::MAX;

    fn encode(out: &mut Vec<u8>, request: &Arrival, shape: &Shape) {
        let key = id_key(shape.key(request));
        let count = shape.count(request.op).to_string();
        match request.op {
            Op::Get => command(out, &[b"GET", &key]),
            Op::Scan => command(out, &[b"RANGE", &key, count.as_bytes()]),
            Op::Set => command(out, &[b"SET", &key, shape.value(request.op)]),
        }
    }

    fn advance(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<bool>)> {
        let reply = resp_reply::parse(bytes)?;
        Ok(reply.map_or((0, None), |reply| (reply.len, Some(reply.ok))))
    }
}

/// A RESP array of bulk strings.
fn command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
    for part in parts {
        out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}
