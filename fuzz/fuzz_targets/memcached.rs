//! Requests of memcached's text protocol. They do not depend on how the bytes are split, and each is within the limits.
#![no_main]

#[path = "../../crates/proto/src/input.rs"]
#[allow(dead_code)]
mod input;
#[path = "../../crates/proto/src/memcached/mod.rs"]
#[allow(dead_code, unused_imports)]
mod memcached;

mod pieces;

use libfuzzer_sys::fuzz_target;
use memcached::{Fatal, MAX_KEY, MAX_KEYS_LINE, MAX_VALUE, Reader, Request};
use pieces::pieces;

type Read = Result<Request, Fatal>;

/// Returns all requests of `pieces` up to the first error, and whether another one has started.
fn requests<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Read>, bool) {
    let (mut reader, mut all) = (Reader::new(), Vec::new());
    for piece in pieces {
        reader.push(piece);
        loop {
            match reader.next_request() {
                Ok(None) => break,
                Ok(Some(request)) => all.push(Ok(request)),
                Err(fatal) => {
                    assert_eq!(reader.next_request(), Err(fatal), "an error stays");
                    all.push(Err(fatal));
                    return (all, false);
                }
            }
        }
        reader.settle();
    }
    (all, reader.is_mid_request())
}

fn is_valid(key: &[u8]) -> bool {
    (1..=MAX_KEY).contains(&key.len()) && key.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}

fn is_within_limits(request: &Request) {
    match request {
        Request::Get { keys, .. } => {
            assert!(keys.iter().count() >= 1 && keys.iter().all(is_valid));
            assert!(keys.iter().map(<[u8]>::len).sum::<usize>() <= MAX_KEYS_LINE);
        }
        Request::Store { command, value } => {
            assert!(is_valid(&command.key) && value.len() <= MAX_VALUE);
        }
        Request::TooLarge(command) => assert!(is_valid(&command.key)),
        Request::Delete(key, _) | Request::Touch(key, ..) | Request::Count { key, .. } => {
            assert!(is_valid(key));
        }
        _ => {}
    }
}

/// A stored value is read back unchanged from what a client would send for it.
fn round_trip(request: &Request) {
    let Request::Store { command, value } = request else { return };
    let mut wire = b"set ".to_vec();
    wire.extend_from_slice(&command.key);
    wire.extend_from_slice(
        format!(" {} {} {}\r\n", command.flags, command.expiry.0, value.len()).as_bytes(),
    );
    wire.extend_from_slice(value);
    wire.extend_from_slice(b"\r\n");
    let mut reader = Reader::new();
    reader.push(&wire);
    match reader.next_request() {
        Ok(Some(Request::Store { command: same, value: read })) => {
            assert_eq!(
                (&same.key, same.flags, same.expiry),
                (&command.key, command.flags, command.expiry)
            );
            assert_eq!(&read, value);
        }
        other => panic!("{other:?}"),
    }
    assert!(!reader.is_mid_request());
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, rest)) = input.split_first() else { return };
    let (lengths, bytes) = rest.split_at(usize::from(cut % 8).min(rest.len()));
    let whole = requests(std::iter::once(bytes));
    assert_eq!(requests(pieces(bytes, lengths)), whole, "it matters how the bytes are cut");
    for request in whole.0.iter().flatten() {
        is_within_limits(request);
        round_trip(request);
    }
});
