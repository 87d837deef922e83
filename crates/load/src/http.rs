//! HTTP/1.1 on persistent connections.
//!
//! `GET /get/<id>` reads a key, `GET /scan/<id>?count=<n>` a range. Status 200 is a success; any other,
//! including 404 for a missing key, is a failure. There is no SET: the options reject it.

use super::arrivals::Arrival;
use super::http_answer::Follow;
use super::mix::Op;
use super::request::Shape;
use super::stream::Dialect;
use std::io;

/// HTTP/1.1 without pipelining: servers such as Go's `net/http` handle the requests of a connection one after
/// the other, so a pipelined request would wait for the one before.
#[derive(Debug, Default)]
pub struct Http {
    follow: Follow,
}

impl Dialect for Http {
    const DEPTH: usize = 1;

    fn encode(out: &mut Vec<u8>, request: &Arrival, shape: &Shape) {
        let id = shape.key(request);
        let target = match request.op {
            Op::Scan => format!("/scan/{id}?count={}", shape.count(request.op)),
            Op::Get | Op::Set => format!("/get/{id}"),
        };
        out.extend_from_slice(format!("GET {target} HTTP/1.1\r\nHost: heddle\r\n\r\n").as_bytes());
    }

    fn advance(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<bool>)> {
        let (done, status) = self.follow.advance(bytes)?;
        Ok((done, status.map(|status| status == 200)))
    }
}
