//! Heads of HTTP requests. The requests do not depend on how the connection's bytes are split.
#![no_main]

#[path = "../../crates/server/src/evented/http/head.rs"]
mod head;
#[path = "../../crates/server/src/evented/http/status.rs"]
#[allow(dead_code)]
mod status;

use head::{Head, MAX_HEAD, Parsed, parse};
use libfuzzer_sys::fuzz_target;
use status::Status;

type Outcome = Result<Head, Status>;

/// A connection as the server has it: bytes that are not yet a request, and the rest of a body.
#[derive(Default)]
struct Connection {
    unread: Vec<u8>,
    skip: u64,
    outcomes: Vec<Outcome>,
    is_over: bool,
}

impl Connection {
    fn push(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        while !self.is_over {
            let skipped = self.skip.min(self.unread.len() as u64);
            self.unread.drain(..skipped as usize);
            self.skip -= skipped;
            if self.skip > 0 || self.unread.is_empty() {
                return;
            }
            match parse(&self.unread) {
                Parsed::Partial => {
                    assert!(self.unread.len() < MAX_HEAD, "a head has an end");
                    return;
                }
                Parsed::Bad(status) => {
                    assert!(status.0 >= 400 && status.reason() != Status::FAILED.reason());
                    self.outcomes.push(Err(status));
                    self.is_over = true;
                }
                Parsed::Head(head, length) => {
                    assert!((1..=self.unread.len().min(MAX_HEAD)).contains(&length));
                    if let Ok(path) = &head.path {
                        assert!(path.starts_with(b"/") && !path.contains(&0));
                    }
                    self.unread.drain(..length);
                    self.skip = head.body;
                    self.is_over = !head.keep;
                    self.outcomes.push(Ok(head));
                }
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, rest)) = input.split_first() else { return };
    let (lengths, bytes) = rest.split_at(usize::from(cut % 8).min(rest.len()));
    let (mut whole, mut cut) = (Connection::default(), Connection::default());
    whole.push(bytes);
    let (mut rest, mut lengths) = (bytes, lengths.iter().cycle());
    while !rest.is_empty() {
        let length = lengths.next().map_or(1, |&length| usize::from(length).max(1));
        let (piece, after) = rest.split_at(length.min(rest.len()));
        cut.push(piece);
        rest = after;
    }
    assert_eq!(cut.outcomes, whole.outcomes, "the requests depend on how the bytes are split");
});
