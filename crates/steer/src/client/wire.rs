//! The message format between client and heddled: an eight-byte header (`HDS`, the version, the length), then
//! JSON. Descriptors travel with the header (SCM_RIGHTS). Both sides bound the bytes, descriptors and time
//! they accept.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::request::{Answer, Error, ErrorKind, Request};

/// The protocol version. Others are refused with a message.
pub const VERSION: u8 = 2;
/// Maximum bytes of a message: enough for the largest policy, each byte of which takes up to four.
pub const MAX_MESSAGE: usize = 4 << 20;
/// Maximum descriptors in a message.
pub const MAX_FDS: usize = 96;

const MAGIC: [u8; 3] = *b"HDS";
const HEADER: usize = 8;
/// Bytes allocated before more of a message has arrived.
const PIECE: usize = 64 << 10;

/// A message from the client.
#[derive(Debug, Serialize, Deserialize)]
pub enum Call {
    /// Serve this request, with the descriptors of this message behind those of [`Call::More`].
    Ask(Request),
    /// Keep these descriptors for the next message: a request has more than fit into one. There is no answer.
    More,
    /// The answer has arrived: keep the attachment. A client that dies before sending this leaves nothing
    /// attached.
    Keep,
}

/// A message from heddled.
pub type Reply = Result<Answer, Error>;

fn io_error(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Error::new(ErrorKind::System, "the other side took too long")
        }
        _ => Error::system("the connection broke", error),
    }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, text)
}

fn left(until: Instant) -> Result<Duration, Error> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io_error(&io::ErrorKind::TimedOut.into())) } else { Ok(left) }
}

/// Sends `value` with `fds`, within `limit`.
///
/// # Errors
/// If it is too large, or the peer has gone or takes too long.
pub fn send<T: Serialize>(
    socket: &UnixStream,
    value: &T,
    fds: &[OwnedFd],
    limit: Duration,
) -> Result<(), Error> {
    let until = Instant::now() + limit;
    let body = serde_json::to_vec(value).map_err(|error| invalid(error.to_string()))?;
    if body.len() > MAX_MESSAGE || fds.len() > MAX_FDS {
        let (bytes, fds) = (body.len(), fds.len());
        return Err(invalid(format!(
            "a message of {bytes} bytes and {fds} descriptors; at most {MAX_MESSAGE} and {MAX_FDS} are taken"
        )));
    }
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut message = [MAGIC.as_slice(), &[VERSION], &length].concat();
    message.extend(body);
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
    let mut sent = 0;
    while sent < message.len() {
        socket.set_write_timeout(Some(left(until)?)).map_err(|error| io_error(&error))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if sent == 0 && !borrowed.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&borrowed));
        }
        let piece = [IoSlice::new(&message[sent..])];
        match sendmsg(socket, &piece, &mut control, SendFlags::NOSIGNAL) {
            Ok(n) => sent += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io_error(&error.into())),
        }
    }
    Ok(())
}

/// Receives a message with its descriptors; `None` if the peer has closed its side.
///
/// # Errors
/// If it is malformed, of another version or too large, or does not arrive within `limit`.
pub fn receive<T: DeserializeOwned>(
    socket: &UnixStream,
    limit: Duration,
) -> Result<Option<(T, Vec<OwnedFd>)>, Error> {
    let until = Instant::now() + limit;
    let (mut header, mut fds) = (Vec::new(), Vec::new());
    if !read(socket, &mut header, HEADER, &mut fds, until)? {
        return Ok(None);
    }
    if header[..3] != MAGIC {
        return Err(invalid("that is not Heddle's language"));
    }
    if header[3] != VERSION {
        let other = header[3];
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the other side speaks version {other}, this one {VERSION}: heddle and heddled must be of one release"
            ),
        ));
    }
    let length =
        header[4..].try_into().map_or(usize::MAX, |bytes| u32::from_le_bytes(bytes) as usize);
    if length > MAX_MESSAGE {
        return Err(invalid(format!(
            "a message of {length} bytes; at most {MAX_MESSAGE} are taken"
        )));
    }
    let mut body = Vec::new();
    if !read(socket, &mut body, length, &mut fds, until)? && length > 0 {
        return Err(invalid("half a message"));
    }
    let value = serde_json::from_slice(&body)
        .map_err(|error| invalid(format!("a message that makes no sense: {error}")))?;
    Ok(Some((value, fds)))
}

/// Reads `length` bytes; returns false if the stream ended before the first.
fn read(
    socket: &UnixStream,
    into: &mut Vec<u8>,
    length: usize,
    fds: &mut Vec<OwnedFd>,
    until: Instant,
) -> Result<bool, Error> {
    while into.len() < length {
        let at = into.len();
        into.resize(length.min(at + PIECE), 0);
        let n = read_some(socket, &mut into[at..], fds, until)?;
        into.truncate(at + n);
        if n == 0 {
            return if at == 0 { Ok(false) } else { Err(invalid("half a message")) };
        }
    }
    Ok(true)
}

fn read_some(
    socket: &UnixStream,
    into: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    until: Instant,
) -> Result<usize, Error> {
    socket.set_read_timeout(Some(left(until)?)).map_err(|error| io_error(&error))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut piece = [IoSliceMut::new(into)];
        match recvmsg(socket, &mut piece, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            result => break result.map_err(|error| io_error(&error.into()))?,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            fds.extend(more);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) || fds.len() > MAX_FDS {
        return Err(invalid(format!("more than {MAX_FDS} descriptors with a message")));
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::request::ROLES;

    const SOON: Duration = Duration::from_millis(200);

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("a pair of sockets")
    }

    fn receive_text(socket: &UnixStream) -> Result<Option<(String, Vec<OwnedFd>)>, Error> {
        receive(socket, SOON)
    }

    #[test]
    fn messages_arrive_with_their_descriptors() {
        let (a, b) = pair();
        let fds: Vec<OwnedFd> =
            (0..MAX_FDS).map(|_| b.try_clone().expect("a copy").into()).collect();
        let long = "x".repeat(100_000);
        let sender = std::thread::spawn(move || send(&a, &long, &fds, SOON * 50));
        let (text, fds) = receive::<String>(&b, SOON * 50).expect("received").expect("something");
        sender.join().expect("joined").expect("sent");
        assert_eq!((text.len(), fds.len()), (100_000, MAX_FDS));
        assert!(receive_text(&b).expect("the end").is_none());
    }

    #[test]
    fn malformed_messages_are_refused_with_a_reason() {
        let refused = |bytes: &[u8]| {
            let (mut a, b) = pair();
            a.write_all(bytes).expect("written");
            drop(a);
            receive_text(&b).expect_err("refused").text
        };
        assert_eq!(refused(b"GET / HTTP/1.1\r\n"), "that is not Heddle's language");
        assert!(refused(b"HDS\x09\0\0\0\0").contains("version 9"));
        assert!(refused(b"HDS\x02\xff\xff\xff\xff").contains("4294967295 bytes"));
        assert_eq!(refused(b"HDS"), "half a message");
        assert_eq!(refused(b"HDS\x02\x05\0\0\0\"a"), "half a message");
        assert!(refused(b"HDS\x02\x02\0\0\0{}").contains("makes no sense"));
    }

    #[test]
    fn a_silent_peer_times_out() {
        let (_a, b) = pair();
        assert!(receive_text(&b).expect_err("too long").text.contains("too long"));
    }

    #[test]
    fn oversized_messages_are_not_sent() {
        let (a, b) = pair();
        let fd = || b.try_clone().expect("a copy").into();
        let fds: Vec<OwnedFd> = (0..=MAX_FDS).map(|_| fd()).collect();
        assert_eq!(send(&a, &"", &fds, SOON).expect_err("refused").kind, ErrorKind::Invalid);
        let long = "x".repeat(MAX_MESSAGE);
        assert_eq!(send(&a, &long, &[], SOON).expect_err("refused").kind, ErrorKind::Invalid);
    }

    /// Parses a request with the given fields.
    fn asked(field: &str, value: &str) -> Result<Option<(Call, Vec<OwnedFd>)>, Error> {
        let mut fields = [
            ("name", "\"hash\""),
            ("parameters", "[]"),
            ("object", "null"),
            ("below", "null"),
            ("command", "\"\""),
            ("roles", "[]"),
        ];
        fields.iter_mut().filter(|(name, _)| *name == field).for_each(|(_, text)| *text = value);
        let [name, parameters, object, below, command, roles] = fields.map(|(_, text)| text);
        let body = format!(
            r#"{{"Ask":{{"Attach":{{"policy":{{"name":{name},"parameters":{parameters},"object":{object}}},"hook":"socket-select","below":{below},"pid":1,"command":{command},"roles":{roles}}}}}}}"#
        );
        let (a, b) = pair();
        let length = u32::try_from(body.len()).expect("short").to_le_bytes();
        let message = [MAGIC.as_slice(), &[VERSION], &length, body.as_bytes()].concat();
        let sender = std::thread::spawn(move || (&a).write_all(&message));
        let received = receive(&b, SOON * 50);
        sender.join().expect("joined").expect("written");
        received
    }

    fn list(of: &str, n: usize) -> String {
        format!("[{}]", vec![of; n].join(","))
    }

    #[test]
    fn request_lists_and_texts_are_bounded() {
        let text = |n: usize| format!("\"{}\"", "a".repeat(n));
        let pair = format!("[\"a\",{}]", text(4096));
        let long = format!("[[\"a\",{}]]", text(4097));
        let role = r#"{"Executor":{"index":0,"label":"x"}}"#;
        let map = format!(r#"[{{"Map":{{"name":{}}}}}]"#, text(4097));
        let below = |n| format!(r#"{{"interface":"lo","cpus":{}}}"#, list("0", n));
        for (field, most, more, says) in [
            ("parameters", list(&pair, 64), list(&pair, 65), "64 parameters"),
            ("roles", list(role, ROLES), list(role, ROLES + 1), "1120 roles"),
            ("below", below(64), below(65), "64 CPUs"),
            ("object", list("7", 1 << 20), list("7", (1 << 20) + 1), "1048576 bytes"),
            ("name", text(4096), text(4097), "4096 bytes"),
            ("command", text(4096), text(4097), "4096 bytes"),
            ("parameters", list("[\"a\",\"b\"]", 1), long, "4096 bytes"),
            ("roles", list(role, 1), map, "4096 bytes"),
        ] {
            assert!(asked(field, &most).is_ok_and(|call| call.is_some()), "{field}");
            let error = asked(field, &more).expect_err(field).text;
            assert!(error.contains(says), "{field}: {error}");
        }
    }
}
