use super::*;
use proptest::prelude::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nDate: now\r\n\r\nabc";
const MISSING: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n\
    5\r\n0\r\n\r\n\r\nA;x=y\r\n0123456789\r\n0\r\nDigest: x\r\n\r\n";
const EARLY: &[u8] =
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 500 Oh\r\nContent-Length: 1\r\n\r\n!";
const EMPTY: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
const ALL: [(&[u8], u16); 5] =
    [(OK, 200), (MISSING, 404), (CHUNKED, 200), (EARLY, 500), (EMPTY, 204)];

/// The statuses of a stream that arrives in parts cut at `cuts`, buffered as a connection does.
fn statuses(bytes: &[u8], cuts: &[usize]) -> io::Result<Vec<u16>> {
    let (mut follow, mut kept, mut statuses) = (Follow::default(), Vec::new(), Vec::new());
    let mut from = 0;
    for &to in cuts.iter().chain([&bytes.len()]) {
        kept.extend_from_slice(&bytes[from..to]);
        from = to;
        loop {
            let (done, ended) = follow.advance(&kept)?;
            kept.drain(..done);
            let Some(status) = ended else { break };
            statuses.push(status);
        }
    }
    assert!(kept.is_empty(), "{} bytes are left", kept.len());
    Ok(statuses)
}

#[test]
fn whole_answers_end_where_they_end() {
    for (bytes, status) in ALL {
        let with_more = [bytes, OK].concat();
        let first = Follow::default().advance(&with_more).unwrap();
        assert_eq!(first, (bytes.len(), Some(status)));
    }
}

#[test]
fn a_long_body_is_never_kept() {
    let mut follow = Follow::default();
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
    assert_eq!(follow.advance(head).unwrap(), (head.len(), None));
    for _ in 0..999 {
        assert_eq!(follow.advance(&[b'x'; 1000]).unwrap(), (1000, None));
    }
    assert_eq!(follow.advance(&[b'x'; 1500]).unwrap(), (1000, Some(200)));
}

#[test]
fn what_cannot_be_followed_is_an_error_that_says_why() {
    for (bytes, why) in [
        (&b"+PONG\r\n\r\n"[..], "its head"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "no length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "no length"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", "ends the connection"),
        (b"HTTP/1.1 400 No\r\nConnection: a, Close\r\n\r\n", "status 400"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "size of a chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffe\r\n", "chunk"),
        (&[&b"HTTP/1.1 200 OK\r\nA: "[..], &[b'a'; MOST_HEAD]].concat(), "more than 16384 bytes"),
    ] {
        let error = Follow::default().advance(bytes).unwrap_err();
        assert!(error.to_string().contains(why), "{error}, not {why}");
    }
}

proptest! {
    /// However the bytes are cut, the answers are the same.
    #[test]
    fn parts_may_come_as_they_like(
        which in prop::collection::vec(0usize..ALL.len(), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let bytes: Vec<u8> = which.iter().flat_map(|&n| ALL[n].0).copied().collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let expected: Vec<u16> = which.iter().map(|&n| ALL[n].1).collect();
        prop_assert_eq!(statuses(&bytes, &cuts).unwrap(), expected);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for head in [&b""[..], b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] {
            let bytes = [head, &bytes].concat();
            if let Ok((done, _)) = Follow::default().advance(&bytes) {
                prop_assert!(done <= bytes.len());
            }
        }
    }
}
