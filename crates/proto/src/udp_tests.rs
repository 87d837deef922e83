use super::*;
use proptest::prelude::*;

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![Just(Op::Get), Just(Op::Put), Just(Op::Scan), Just(Op::Ping)]
}

fn ping() -> Vec<u8> {
    let mut out = Vec::new();
    Request { op: Op::Ping, id: 7, sent: Ns(9), key: Key::Id(0), count: 0, value: &[] }
        .encode(&mut out);
    out
}

#[test]
fn layout_is_fixed() {
    let bytes = ping();
    assert_eq!(bytes.len(), REQUEST_HEADER);
    assert_eq!(bytes[..4], [b'H', 1, 4, 0]);
    assert_eq!(bytes[8..24], [7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn each_fault_is_named() {
    let broken = |at: usize, byte: u8| {
        let mut bytes = ping();
        bytes[at] = byte;
        Request::decode(&bytes).unwrap_err()
    };
    assert_eq!(Request::decode(b"H\x01"), Err(Malformed::Short(2)));
    assert_eq!(broken(0, b'X'), Malformed::Magic(0x0158));
    assert_eq!(broken(2, 0), Malformed::Op(0));
    assert_eq!(broken(3, 2), Malformed::Flags(2));
    let mut short = ping();
    short[3] = FLAG_KEY_BYTES;
    short[24] = 1;
    assert_eq!(Request::decode(&short), Err(Malformed::Key(1)));
}

#[test]
fn digest_sees_every_byte() {
    let value: Vec<u8> = (0..37).collect();
    let whole = digest(0, &value);
    for at in 0..value.len() {
        let mut other = value.clone();
        other[at] ^= 1;
        assert_ne!(digest(0, &other), whole, "byte {at}");
    }
}

#[test]
fn ids_sort_as_their_keys() {
    for pair in [0, 1, 9, 10, 99, 100, 999_999_999_999].windows(2) {
        assert!(id_key(pair[0]) < id_key(pair[1]));
    }
    assert_eq!(&id_key(u64::MAX), b"key:073709551615", "the last twelve digits stay");
}

proptest! {
    #[test]
    fn requests_survive_the_wire(
        op in ops(), id: u64, sent: u64, count: u32, key_id: u64, by_bytes: bool,
        key in prop::collection::vec(any::<u8>(), 0..40),
        value in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let key = if by_bytes { Key::Bytes(&key) } else { Key::Id(key_id) };
        let request = Request { op, id, sent: Ns(sent), key, count, value: &value };
        let mut wire = Vec::new();
        request.encode(&mut wire);
        prop_assert_eq!(Request::decode(&wire), Ok(request));
    }

    #[test]
    fn responses_survive_the_wire(
        op in ops(), status in 0u8..4, id: u64, sent: u64, count: u32, service: u32, queued: u32,
        bytes: u32, digest: u32,
    ) {
        let response = Response {
            op, status: Status::from_byte(status).unwrap(), id, sent: Ns(sent), count,
            service: Ns(service.into()), queued: Ns(queued.into()), bytes, digest,
        };
        prop_assert_eq!(Response::decode(&response.encode()), Ok(response));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = Request::decode(&bytes);
        let _ = Response::decode(&bytes);
    }
}
