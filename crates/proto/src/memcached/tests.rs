use proptest::prelude::*;

use super::*;

type Outcome = (Vec<Request>, Option<Fatal>);
/// Keys, whether with unique numbers, and the new expiry.
type Read<'a> = (Vec<&'a [u8]>, bool, Option<i64>);

/// The results of pushing `chunks` one after the other.
fn read_all<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let (mut reader, mut requests) = (Reader::new(), Vec::new());
    for chunk in chunks {
        reader.push(chunk);
        loop {
            match reader.next_request() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(fatal) => return (requests, Some(fatal)),
            }
        }
        reader.settle();
    }
    (requests, None)
}

fn read(bytes: &[u8]) -> Vec<Request> {
    let (requests, fatal) = read_all([bytes]);
    assert_eq!(fatal, None);
    requests
}

fn refused(refusal: Refusal) -> Request {
    Request::Refused(refusal, Reply::Wanted)
}

fn command(condition: Condition, flags: u32, expiry: i64, reply: Reply) -> Store {
    Store { condition, key: b"k".to_vec(), flags, expiry: Expiry(expiry), reply }
}

#[test]
fn storage_commands_carry_flags_times_and_values() {
    let requests = read(
        b"set k 4294967295 0 3\r\na\r\n\r\nadd k 0 -1 0 noreply\r\n\r\ncas k 1 60 1 99\r\nx\r\n\
          replace k 0 0 1\nx\r\nappend  k 0 0 1\r\nx\r\nprepend k 0 0 1 noreply\r\nx\r\n",
    );
    let expected = [
        (command(Condition::Always, u32::MAX, 0, Reply::Wanted), &b"a\r\n"[..]),
        (command(Condition::Missing, 0, -1, Reply::Unwanted), b""),
        (command(Condition::Unchanged(99), 1, 60, Reply::Wanted), b"x"),
        (command(Condition::Present, 0, 0, Reply::Wanted), b"x"),
        (command(Condition::Append, 0, 0, Reply::Wanted), b"x"),
        (command(Condition::Prepend, 0, 0, Reply::Unwanted), b"x"),
    ];
    let expected = expected.map(|(command, value)| Request::Store { command, value: value.into() });
    assert_eq!(requests, expected);
}

#[test]
fn reads_name_one_key_or_many() {
    let requests = read(b"get a\r\n gets a  bb c \nget a\r\ngat 10 a b\r\ngats 0 a\r\n");
    let seen: Vec<Read<'_>> = requests
        .iter()
        .map(|request| match request {
            Request::Get { keys, with_cas, touch } => {
                (keys.iter().collect(), *with_cas, touch.map(|expiry| expiry.0))
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let expected: [Read<'_>; 5] = [
        (vec![b"a"], false, None),
        (vec![b"a", b"bb", b"c"], true, None),
        (vec![b"a"], false, None),
        (vec![b"a", b"b"], false, Some(10)),
        (vec![b"a"], true, Some(0)),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn short_commands() {
    use Direction::{Down, Up};
    use Reply::{Unwanted, Wanted};
    let k = || b"k".to_vec();
    let cases: [(&str, Request); 17] = [
        ("delete k", Request::Delete(k(), Wanted)),
        ("delete k 0", Request::Delete(k(), Wanted)),
        ("delete k 0 noreply", Request::Delete(k(), Unwanted)),
        ("delete k noreply", Request::Delete(k(), Unwanted)),
        ("incr k 5", Request::Count { key: k(), direction: Up, by: 5, reply: Wanted }),
        ("decr k 0 noreply", Request::Count { key: k(), direction: Down, by: 0, reply: Unwanted }),
        ("touch k -1", Request::Touch(k(), Expiry(-1), Wanted)),
        ("touch k 9 noreply", Request::Touch(k(), Expiry(9), Unwanted)),
        ("flush_all", Request::FlushAll(0, Wanted)),
        ("flush_all noreply", Request::FlushAll(0, Unwanted)),
        ("flush_all 10 noreply", Request::FlushAll(10, Unwanted)),
        ("verbosity 1", Request::Verbosity(Wanted)),
        ("verbosity 1 noreply", Request::Verbosity(Unwanted)),
        ("version", Request::Version),
        ("stats", Request::Stats(vec![])),
        ("stats items", Request::Stats(b"items".to_vec())),
        ("quit", Request::Quit),
    ];
    for (line, request) in cases {
        assert_eq!(read(format!("{line}\r\n").as_bytes()), [request], "{line}");
    }
}

#[test]
fn refusals_leave_the_connection_in_step() {
    let long = "k".repeat(MAX_KEY + 1);
    let cases = [
        ("", Refusal::Unknown),
        ("get", Refusal::Unknown),
        ("GET a", Refusal::Unknown),
        ("gat 10", Refusal::Unknown),
        ("gat x a", Refusal::Expiry),
        ("mg a v", Refusal::Unknown),
        ("get a \x01", Refusal::Format),
        ("get a\tb", Refusal::Format),
        ("set k 0 0", Refusal::Unknown),
        ("set k 0 0 -1", Refusal::Format),
        ("set k 0 0 x", Refusal::Format),
        ("set k x 0 2\r\n12", Refusal::Format),
        ("set k 4294967296 0 2\r\n12", Refusal::Format),
        ("set k 0 1.5 2\r\n12", Refusal::Format),
        ("cas k 0 0 2 x\r\n12", Refusal::Format),
        ("set k\x7f 0 0 2\r\n12", Refusal::Format),
        ("delete k 5", Refusal::DeleteUsage),
        ("delete k 5 noreply x", Refusal::Unknown),
        ("incr k x", Refusal::Delta),
        ("decr k -1", Refusal::Delta),
        ("touch k x", Refusal::Expiry),
        ("verbosity", Refusal::Unknown),
    ];
    for (line, refusal) in cases {
        let requests = read(format!("{line}\r\nversion\r\n").as_bytes());
        assert_eq!(requests, [refused(refusal), Request::Version], "{line:?}");
    }
    for line in [format!("get {long}"), format!("set {long} 0 0 2\r\n12"), format!("delete {long}")]
    {
        let requests = read(format!("{line}\r\nversion\r\n").as_bytes());
        assert_eq!(requests, [refused(Refusal::Format), Request::Version], "{line}");
    }
}

/// As in memcached, what follows the announced length and two bytes more is the next line.
#[test]
fn a_data_block_ends_where_its_length_says() {
    let requests = read(b"set k 0 0 2\r\n123\r\nversion\r\n");
    assert_eq!(requests, [refused(Refusal::DataEnd), refused(Refusal::Unknown), Request::Version]);
}

#[test]
fn values_up_to_the_limit_are_read_and_longer_ones_skipped() {
    let request = |len| format!("set k 0 0 {len}\r\n{}\r\nversion\r\n", "x".repeat(len));
    let set = command(Condition::Always, 0, 0, Reply::Wanted);
    let requests = read(request(MAX_VALUE).as_bytes());
    let value = vec![b'x'; MAX_VALUE];
    assert_eq!(requests, [Request::Store { command: set.clone(), value }, Request::Version]);
    let requests = read(request(MAX_VALUE + 1).as_bytes());
    assert_eq!(requests, [Request::TooLarge(set), Request::Version]);
}

#[test]
fn a_skipped_value_is_not_held() {
    let mut reader = Reader::new();
    reader.push(b"set k 0 0 2147483645\r\n");
    assert!(matches!(reader.next_request(), Ok(Some(Request::TooLarge(_)))));
    for _ in 0..1000 {
        reader.push(&[b'x'; 4096]);
        assert_eq!(reader.next_request(), Ok(None));
        assert!(reader.is_mid_request());
    }
    assert!(reader.held() < 64 << 10, "{}", reader.held());
}

#[test]
fn lines_are_bounded_and_those_of_keys_longer() {
    let keys = |len: usize| format!("get {}", "k ".repeat((len - 4) / 2));
    assert_eq!(read_all([keys(MAX_KEYS_LINE).as_bytes(), b"\n"]).0.len(), 1);
    assert_eq!(read_all([keys(MAX_KEYS_LINE + 2).as_bytes()]), (vec![], Some(Fatal::Line)));
    let other = |len: usize| format!("get{}", "x".repeat(len - 3));
    assert_eq!(read_all([other(MAX_LINE).as_bytes(), b"\n"]).1, None);
    assert_eq!(read_all([other(MAX_LINE + 1).as_bytes()]), (vec![], Some(Fatal::Line)));
}

#[test]
fn the_binary_protocol_is_refused_and_the_error_stays() {
    let mut reader = Reader::new();
    reader.push(b"version\r\n\x80\x0a\0\0");
    assert_eq!(reader.next_request(), Ok(Some(Request::Version)));
    assert_eq!(reader.next_request(), Err(Fatal::Binary));
    reader.push(b"version\r\n");
    assert_eq!(reader.next_request(), Err(Fatal::Binary));
    assert_eq!(reader.held(), 0);
}

#[test]
fn times_are_relative_up_to_thirty_days() {
    let day = 24 * 60 * 60;
    let cases = [
        (0, 0),
        (-1, 1),
        (i64::MIN, 1),
        (1, 1_500),
        (30 * day, 500 + 30 * day as u64 * 1000),
        (30 * day + 1, (30 * day as u64 + 1) * 1000),
        (i64::MAX, u64::MAX),
    ];
    for (seconds, at) in cases {
        assert_eq!(Expiry(seconds).at_ms(500), at, "{seconds}");
    }
}

#[test]
fn replies() {
    let mut out = Vec::new();
    value(&mut out, b"k", 7, b"a\r\n", None);
    value(&mut out, b"k", 0, b"", Some(3));
    line(&mut out, "END");
    number(&mut out, u64::MAX);
    assert_eq!(
        out,
        b"VALUE k 7 3\r\na\r\n\r\nVALUE k 0 0 3\r\n\r\nEND\r\n18446744073709551615\r\n"
    );
}

/// Streams that reach every state: fragments of requests, right and wrong, in any order.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "get a b\r\n",
            "gets a\n",
            "gat 1 a\r\n",
            "set k 1 2 3\r\nabc\r\n",
            "set k 1 2 3 noreply\r\n",
            "cas k 0 0 0 5\r\n\r\n",
            "add k x 0 4\r\n",
            "set k 0 0 2000000\r\n",
            "incr k 1\r\n",
            "touch k 0\r\n",
            "delete k noreply\r\n",
            "flush_all 0\r\n",
            " ",
            "\r\n",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_split_reads_the_same(
        stream in streams(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let whole = read_all([&stream[..]]);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
        prop_assert_eq!(read_all(chunks), whole.clone());
        prop_assert_eq!(read_all(stream.chunks(1)), whole);
    }

    #[test]
    fn what_is_written_is_read(
        value in prop::collection::vec(any::<u8>(), 0..200),
        flags: u32,
        expiry: i64,
    ) {
        let mut wire = format!("set k {flags} {expiry} {}\r\n", value.len()).into_bytes();
        wire.extend_from_slice(&value);
        wire.extend_from_slice(b"\r\n");
        let command = command(Condition::Always, flags, expiry, Reply::Wanted);
        prop_assert_eq!(read(&wire), [Request::Store { command, value }]);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_all([&bytes[..]]);
    }
}
