//! What members and the broker say to each other: packets of a Unix socket, some with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::abi::CPUS;

/// The most bytes of a packet.
pub const MAX_PACKET: usize = 64 << 10;
/// The most descriptors of a packet: a part of the memory, and one for each CPU.
pub const MAX_FDS: usize = CPUS + 1;
/// The most descriptors that a packet can bring, by the kernel (`SCM_MAX_FD`). All are received: those for which there
/// is no room are closed by the receiver's thread, which may take forever.
const KERNEL_FDS: usize = 253;
/// The most bytes of an [`Message::Answer`] in the packet itself; a longer one is in a file whose descriptor comes with
/// an empty one.
pub const MAX_ANSWER: usize = 32 << 10;

/// A message. The comment says who sends it, and with which descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A process asks to become a member: `class` is 0 for latency-critical, 1 for best-effort.
    Join {
        /// The version of [`crate::abi`].
        version: u32,
        /// The application's class.
        class: u32,
        /// Its name.
        name: String,
    },
    /// The broker admits it, with the broker's part for reading and the member's own for writing.
    Admitted {
        /// The member's number.
        app: u32,
        /// The CPUs, by the system's numbers.
        cpus: Vec<u32>,
    },
    /// The broker refuses it, or removes it: why.
    Refused(String),
    /// The member has mapped its part. With the writing ends of the pipes by which it is asked to make way, one for
    /// each CPU.
    Ready,
    /// The broker says that there is another member: with its part for reading and its pipes.
    Peer(u32),
    /// The broker says that a member is gone.
    Left(u32),
    /// A member has waited for long for this CPU (an index).
    Alert(u32),
    /// A user asks how things are.
    Status,
    /// The broker's answer, in JSON. One longer than [`MAX_ANSWER`] is in a file, with whose descriptor comes an empty
    /// text.
    Answer(String),
}

/// What arrives on a socket.
#[derive(Debug)]
pub struct Packet {
    /// The message; an error if the bytes are none.
    pub message: Result<Message, NoMessage>,
    /// The descriptors.
    pub fds: Vec<OwnedFd>,
}

/// Why a packet has no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMessage {
    /// The peer is gone, or has sent an empty packet.
    Gone,
    /// The bytes are no message.
    Malformed,
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        let words = |kind: u32, words: &[u32], text: &str| {
            let numbers = std::iter::once(&kind).chain(words).flat_map(|word| word.to_le_bytes());
            numbers.chain(text.bytes()).collect()
        };
        match self {
            Message::Join { version, class, name } => words(1, &[*version, *class], name),
            Message::Admitted { app, cpus } => words(2, &[&[*app], cpus.as_slice()].concat(), ""),
            Message::Refused(why) => words(3, &[], why),
            Message::Ready => words(4, &[], ""),
            Message::Peer(app) => words(5, &[*app], ""),
            Message::Left(app) => words(6, &[*app], ""),
            Message::Alert(cpu) => words(7, &[*cpu], ""),
            Message::Status => words(8, &[], ""),
            Message::Answer(text) => words(9, &[], text),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Message> {
        let mut rest = bytes;
        let mut word = || {
            let (first, others) = rest.split_first_chunk::<4>()?;
            rest = others;
            Some(u32::from_le_bytes(*first))
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(match word()? {
            1 => {
                let (version, class) = (word()?, word()?);
                Message::Join { version, class, name: text(rest) }
            }
            2 => {
                let app = word()?;
                Message::Admitted { app, cpus: std::iter::from_fn(word).collect() }
            }
            3 => Message::Refused(text(rest)),
            4 => Message::Ready,
            5 => Message::Peer(word()?),
            6 => Message::Left(word()?),
            7 => Message::Alert(word()?),
            8 => Message::Status,
            9 => Message::Answer(text(rest)),
            _ => return None,
        })
    }
}

/// Sends a message; does not wait if the peer does not read.
///
/// # Errors
/// The system's; `WouldBlock` if the peer does not read.
pub fn send(socket: impl AsFd, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = message.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, flags))?;
    Ok(())
}

/// Receives the next message, with its descriptors; `None` if the peer is gone.
///
/// # Errors
/// The system's; `InvalidData` if it is no message.
pub fn receive(socket: impl AsFd) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    let Packet { message, fds } = receive_packet(socket)?;
    match message {
        Ok(message) => Ok(Some((message, fds))),
        Err(NoMessage::Gone) => Ok(None),
        Err(NoMessage::Malformed) => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "no message of a share"))
        }
    }
}

/// As [`receive`], for a receiver that must not close descriptors which others have sent.
///
/// # Errors
/// The system's.
pub fn receive_packet(socket: impl AsFd) -> io::Result<Packet> {
    let mut bytes = vec![0; MAX_PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(KERNEL_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut bytes = [IoSliceMut::new(&mut bytes)];
        recvmsg(&socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    let received = match received {
        Ok(received) => received.bytes,
        Err(rustix::io::Errno::CONNRESET) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let message = match received {
        0 => Err(NoMessage::Gone),
        len => Message::decode(&bytes[..len]).ok_or(NoMessage::Malformed),
    };
    Ok(Packet { message, fds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn messages() -> impl Strategy<Value = Message> {
        let text = || "[a-z \u{e9}]{0,20}";
        prop_oneof![
            (any::<u32>(), any::<u32>(), text()).prop_map(|(version, class, name)| Message::Join {
                version,
                class,
                name
            }),
            (any::<u32>(), prop::collection::vec(any::<u32>(), 0..9))
                .prop_map(|(app, cpus)| Message::Admitted { app, cpus }),
            text().prop_map(Message::Refused),
            Just(Message::Ready),
            any::<u32>().prop_map(Message::Peer),
            any::<u32>().prop_map(Message::Left),
            any::<u32>().prop_map(Message::Alert),
            Just(Message::Status),
            text().prop_map(Message::Answer),
        ]
    }

    proptest! {
        #[test]
        fn a_message_reads_back_as_it_was(message in messages()) {
            prop_assert_eq!(Message::decode(&message.encode()), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Message::decode(&bytes);
        }
    }
}
