use proptest::prelude::*;

use super::*;
use crate::input::{COMPACT_AT, KEPT};

type Outcome = (Vec<Request>, Option<ProtocolError>);

const SMALL: Limits = Limits { key: 4, value: 8, args: 4, request: 20 };

/// The results of pushing `chunks` one after the other.
fn read_all<'a>(limits: Limits, chunks: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let (mut reader, mut requests) = (Reader::new(limits), Vec::new());
    for chunk in chunks {
        reader.push(chunk);
        loop {
            match reader.next_request() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

fn read(bytes: &[u8]) -> Outcome {
    read_all(SMALL, [bytes])
}

fn command(words: &[&str]) -> Request {
    Request::Command(words.iter().map(|w| w.as_bytes().to_vec()).collect())
}

fn encode(args: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    array(&mut out, args.len());
    args.iter().for_each(|arg| bulk(&mut out, arg));
    out
}

#[test]
fn pipelined_arrays_and_lines() {
    let (requests, error) = read(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n\r\n*0\r\n*-1\r\nGET b\n");
    assert_eq!(error, None);
    assert_eq!(requests, [command(&["GET", "a"]), command(&["PING"]), command(&["GET", "b"])]);
}

#[test]
fn an_argument_that_is_too_long_is_skipped() {
    let (requests, error) =
        read(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\n123456789\r\n*1\r\n$4\r\nPING\r\n");
    assert_eq!(error, None);
    assert_eq!(requests, [Request::TooLong { len: 9, limit: 8 }, command(&["PING"])]);
}

#[test]
fn many_arguments_of_allowed_length_are_too_long_together() {
    let eight = || vec![b'x'; 8];
    let (requests, error) = read(&encode(&[eight(), eight(), eight()]));
    assert_eq!((requests, error), (vec![Request::TooLong { len: 8, limit: 8 }], None));
}

#[test]
fn faults_end_the_connection() {
    let cases: [(&[u8], ProtocolError); 8] = [
        (b"*5\r\n", ProtocolError::TooMany(5, 4)),
        (b"a b c d e\r\n", ProtocolError::TooMany(5, 4)),
        (b"*x\r\n", ProtocolError::ArrayLength),
        (b"*1\r\n+PING\r\n", ProtocolError::NotBulk(b'+')),
        (b"*1\r\n$-1\r\n", ProtocolError::BulkLength),
        (b"*1\r\n$99999999999\r\n", ProtocolError::BulkLength),
        (b"*1\r\n$4\r\nPINGS\r\n", ProtocolError::BulkEnd),
        (b"SET 'a\r\n", ProtocolError::Quotes),
    ];
    for (bytes, expected) in cases {
        assert_eq!(read(bytes), (vec![], Some(expected)), "{}", bytes.escape_ascii());
    }
    let long = vec![b'a'; MAX_LINE + 1];
    assert_eq!(read(&long).1, Some(ProtocolError::Line));
}

#[test]
fn an_error_stays() {
    let mut reader = Reader::new(SMALL);
    reader.push(b"*x\r\n");
    assert_eq!(reader.next_request(), Err(ProtocolError::ArrayLength));
    reader.push(b"PING\r\n");
    assert_eq!(reader.next_request(), Err(ProtocolError::ArrayLength));
}

/// Short arguments take more than their bytes: a connection that counted only bytes would hold many times
/// what it accounts for.
#[test]
fn what_is_read_of_a_request_counts_with_its_parts() {
    let mut reader = Reader::new(Limits::default());
    reader.push(b"*1000\r\n");
    assert_eq!(reader.next_request(), Ok(None));
    for parts in 1..1000 {
        reader.push(b"$1\r\na\r\n");
        assert_eq!(reader.next_request(), Ok(None));
        let least = parts * (size_of::<Vec<u8>>() + 1);
        assert!(reader.held() > least, "{parts} parts hold {} bytes", reader.held());
    }
    reader.push(b"$1\r\na\r\n");
    assert!(reader.next_request().unwrap().is_some());
    reader.settle();
    assert!(reader.held() <= KEPT, "{}", reader.held());
}

#[test]
fn after_an_error_nothing_is_held() {
    let words = "a ".repeat(MAX_LINE / 2 - 1);
    let faults = [format!("{words}\n"), format!("*3\r\n$4000\r\n{:4000}\r\n$3\r\nGET\r\n+", "")];
    for fault in faults {
        let mut reader = Reader::new(Limits::default());
        reader.push(fault.as_bytes());
        reader.push(b"\n");
        assert!(reader.next_request().is_err());
        assert_eq!(reader.held(), 0);
        reader.push(&[0; 4096]);
        assert_eq!(reader.held(), 0, "what comes later");
    }
}

#[test]
fn half_a_request_is_noticed() {
    let mut reader = Reader::new(SMALL);
    assert!(!reader.is_mid_request());
    reader.push(b"*1\r\n");
    assert_eq!(reader.next_request(), Ok(None));
    assert!(reader.is_mid_request(), "the array is open although the buffer is empty");
    reader.push(b"$4\r\nPING\r\n");
    assert!(reader.next_request().unwrap().is_some());
    assert!(!reader.is_mid_request());
}

#[test]
fn the_buffer_does_not_grow_with_the_stream() {
    let mut reader = Reader::new(SMALL);
    for _ in 0..100_000 {
        reader.push(b"*1\r\n$4\r\nPING\r\n*1");
        while reader.next_request().unwrap().is_some() {}
        reader.push(b"\r\n$4\r\nPING\r\n");
        while reader.next_request().unwrap().is_some() {}
    }
    reader.push(b"*1\r\n$536870912\r\n");
    for _ in 0..1000 {
        reader.push(&[0; 4096]);
        assert_eq!(reader.next_request(), Ok(None));
    }
    assert!(reader.input.capacity() < 2 * COMPACT_AT, "{}", reader.input.capacity());
}

#[test]
fn replies() {
    let mut out = Vec::new();
    simple(&mut out, "OK");
    error(&mut out, "ERR two\r\nlines");
    int(&mut out, -3);
    nil(&mut out);
    array(&mut out, 1);
    bulk(&mut out, b"a\r\n");
    assert_eq!(out, b"+OK\r\n-ERR two  lines\r\n:-3\r\n$-1\r\n*1\r\n$3\r\na\r\n\r\n");
}

/// Streams that reach every state: fragments of requests, right and wrong, in any order.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 1..6)
            .prop_map(|args| encode(&args)),
        prop::sample::select(vec![
            &b"PING\r\n"[..],
            b"GET a\n",
            b"\r\n",
            b"*2\r\n",
            b"$3\r\nGET\r\n",
            b"$",
            b"*",
            b"'a'\r\n",
            b"*1\r\n$20\r\n",
            b"\"\\x41\"\r\n",
        ])
        .prop_map(<[u8]>::to_vec),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_split_reads_the_same(
        stream in streams(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let whole = read_all(SMALL, [&stream[..]]);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
        prop_assert_eq!(read_all(SMALL, chunks), whole.clone());
        prop_assert_eq!(read_all(SMALL, stream.chunks(1)), whole);
    }

    #[test]
    fn what_is_written_is_read(
        requests in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 1..5), 0..5),
    ) {
        let stream: Vec<u8> = requests.iter().flat_map(|args| encode(args)).collect();
        let expected: Vec<Request> = requests.into_iter().map(Request::Command).collect();
        prop_assert_eq!(read(&stream), (expected, None));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_all(Limits::default(), [&bytes[..]]);
    }
}
