//! Requests to the key-value server. They do not depend on how the bytes are split, and each reported request
//! is one.
#![no_main]

#[path = "../../crates/proto/src/input.rs"]
#[allow(dead_code)]
mod input;
#[path = "../../crates/proto/src/resp.rs"]
#[allow(dead_code)]
mod resp;
#[path = "../../crates/proto/src/resp_words.rs"]
mod resp_words;

mod pieces;

use libfuzzer_sys::fuzz_target;
use pieces::pieces;
use resp::{Limits, ProtocolError, Reader, Request};

/// Small: short inputs reach them.
const LIMITS: Limits = Limits { key: 16, value: 64, args: 8, request: 128 };

type Read = Result<Request, ProtocolError>;

/// Returns all requests of `pieces` up to the first error, and whether another one has started.
fn requests<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Read>, bool) {
    let (mut reader, mut all) = (Reader::new(LIMITS), Vec::new());
    for piece in pieces {
        reader.push(piece);
        loop {
            match reader.next_request() {
                Ok(None) => break,
                Ok(Some(request)) => all.push(Ok(request)),
                Err(error) => {
                    assert_eq!(reader.next_request(), Err(error), "an error stays");
                    all.push(Err(error));
                    return (all, false);
                }
            }
        }
        reader.settle();
    }
    (all, reader.is_mid_request())
}

fn is_within_limits(request: &Request) {
    match request {
        Request::Command(args) => {
            let sum: usize = args.iter().map(Vec::len).sum();
            assert!(!args.is_empty() && args.len() <= LIMITS.args && sum <= resp::MAX_LINE);
        }
        Request::TooLong { len, .. } => assert!(*len <= resp::MAX_SKIPPED),
    }
}

/// A written request is read back unchanged.
fn round_trip(args: &[Vec<u8>]) {
    let mut wire = Vec::new();
    resp::array(&mut wire, args.len());
    args.iter().for_each(|arg| resp::bulk(&mut wire, arg));
    let limits = Limits { value: usize::MAX / 4, request: usize::MAX / 4, ..LIMITS };
    let mut reader = Reader::new(limits);
    reader.push(&wire);
    assert_eq!(reader.next_request(), Ok(Some(Request::Command(args.to_vec()))));
    assert!(!reader.is_mid_request());
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, rest)) = input.split_first() else { return };
    let (lengths, bytes) = rest.split_at(usize::from(cut % 8).min(rest.len()));
    let whole = requests(std::iter::once(bytes));
    assert_eq!(requests(pieces(bytes, lengths)), whole, "it matters how the bytes are cut");
    for request in whole.0.iter().flatten() {
        is_within_limits(request);
        if let Request::Command(args) = request {
            round_trip(args);
        }
    }
});
