//! HTTP/1.1 on a connection that is kept alive.
//!
//! `GET /get/<id>` reads a key, `GET /scan/<id>?count=<n>` a range. Status 200 is what was asked for; any other,
//! 404 for a key that does not exist among them, is a failure. There is no SET: the options refuse it.

use super::arrivals::Arrival;
use super::http_answer::Follow;
use super::mix::Op;
use super::request::Shape;
use super::stream::Dialect;
use std::io;

/// HTTP/1.1 without pipelining: servers work on the requests of one connection one after the other (Go's
/// `net/http` among them), so that a pipelined one would wait for another's work.
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
