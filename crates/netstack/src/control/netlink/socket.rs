//! The two sockets: one for requests and their answers, one for notifications.
//!
//! With one socket for both, notifications would arrive between the parts of an answer, and an overrun would lose
//! either.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::kind;
use super::link::{self, LinkRecord};
use super::neighbour::{self, NeighbourRecord};
use super::wire::{self, Message, Request};

/// The kernel's answers have at most 32 KiB.
const BUFFER: usize = 64 * 1024;
/// What may queue up before notifications are lost.
const EVENT_BUFFER: usize = 1024 * 1024;
/// The number of times that a dump is repeated because its table changed under it.
const TRIES: u32 = 5;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const FLAG_ACK: u16 = 4;
const FLAG_DUMP: u16 = 0x300;
const FLAG_DUMP_INTERRUPTED: u16 = 0x10;

/// The groups of notifications, as bits: a group's number less one.
const GROUPS: [u32; 9] = [
    1,  // links
    3,  // neighbours
    5,  // IPv4 addresses
    7,  // IPv4 routes
    8,  // IPv4 rules
    9,  // IPv6 addresses
    11, // IPv6 routes
    12, // IPv6 settings of links, the MTU among them
    19, // IPv6 rules
];

/// A socket for requests.
#[derive(Debug)]
pub(in super::super) struct Requests {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Requests {
    /// Opens it in the network namespace of the calling thread.
    pub(in super::super) fn open() -> io::Result<Self> {
        Ok(Self { socket: open(0, SocketFlags::empty())?, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// Asks for a change, and waits for the kernel's answer.
    pub(in super::super) fn change(&mut self, request: Request) -> io::Result<()> {
        self.exchange(request, &mut |_| {}).map(drop)
    }

    /// Reads an interface; `None` if there is none of this index.
    pub(in super::super) fn link(&mut self, index: u32) -> io::Result<Option<LinkRecord>> {
        let request = Request::new(kind::GET_LINK, FLAG_ACK, &link::fixed(index));
        let mut record = None;
        match self.exchange(request, &mut |message| record = link::parse(message)) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
                Ok(None)
            }
            result => result.map(|_| record),
        }
    }

    /// Reads all interfaces.
    pub(in super::super) fn links(&mut self) -> io::Result<Vec<LinkRecord>> {
        let request = || Request::new(kind::GET_LINK, FLAG_DUMP, &link::fixed(0));
        Ok(self.dump_by(request, link::parse)?.0)
    }

    /// Reads the neighbours of an interface; false as in [`Requests::dump`].
    pub(in super::super) fn dump_neighbours(
        &mut self,
        index: u32,
    ) -> io::Result<(Vec<NeighbourRecord>, bool)> {
        let parse = |message: &Message<'_>| {
            neighbour::parse(message).filter(|record| record.index == index)
        };
        self.dump_by(|| neighbour::dump(index, FLAG_DUMP), parse)
    }

    /// Reads a table of a family: what `parse` makes of each record. The result is false if the table went on changing
    /// while it was read, so that records may be missing.
    pub(in super::super) fn dump<T>(
        &mut self,
        kind: u16,
        family: u8,
        parse: impl Fn(&Message<'_>) -> Option<T>,
    ) -> io::Result<(Vec<T>, bool)> {
        // The fixed parts of addresses, routes and rules begin with the family and have at most twelve bytes.
        let fixed = [family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        self.dump_by(|| Request::new(kind, FLAG_DUMP, &fixed), parse)
    }

    fn dump_by<T>(
        &mut self,
        make: impl Fn() -> Request,
        parse: impl Fn(&Message<'_>) -> Option<T>,
    ) -> io::Result<(Vec<T>, bool)> {
        let mut records = Vec::new();
        for _ in 0..TRIES {
            records.clear();
            if self.exchange(make(), &mut |message| records.extend(parse(message)))? {
                return Ok((records, true));
            }
        }
        Ok((records, false))
    }

    /// Sends a request and reads its answer. Returns false if a dump was interrupted by a change.
    fn exchange(
        &mut self,
        request: Request,
        each: &mut dyn FnMut(&Message<'_>),
    ) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(self.sequence);
        rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, &bytes, SendFlags::empty()))?;
        let mut whole = true;
        loop {
            let length = receive(&self.socket, &mut self.buffer)?;
            for message in wire::messages(&self.buffer[..length]) {
                if message.sequence != self.sequence {
                    continue;
                }
                whole &= message.flags & FLAG_DUMP_INTERRUPTED == 0;
                match message.kind {
                    ERROR | DONE => return status(&message).map(|()| whole),
                    _ => each(&message),
                }
            }
        }
    }
}

/// A socket for notifications. Reading it never blocks.
#[derive(Debug)]
pub(in super::super) struct Events {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Events {
    /// Opens it in the network namespace of the calling thread. What changes from then on is notified.
    pub(in super::super) fn open() -> io::Result<Self> {
        let groups = GROUPS.iter().fold(0, |bits, group| bits | 1 << (group - 1));
        let socket = open(groups, SocketFlags::NONBLOCK)?;
        // The limit of `net.core.rmem_max` does not hold for those with CAP_NET_ADMIN.
        if sockopt::set_socket_recv_buffer_size_force(&socket, EVENT_BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, EVENT_BUFFER)?;
        }
        Ok(Self { socket, buffer: vec![0; BUFFER] })
    }

    /// Calls `each` with the notifications of one datagram. Returns false if there is none.
    ///
    /// # Errors
    /// `ENOBUFS` if notifications were lost.
    pub(in super::super) fn read(
        &mut self,
        mut each: impl FnMut(&Message<'_>),
    ) -> io::Result<bool> {
        let length = match receive(&self.socket, &mut self.buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            result => result?,
        };
        wire::messages(&self.buffer[..length]).for_each(|message| each(&message));
        Ok(true)
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the flags of a request for a change.
pub(super) const fn change_flags() -> u16 {
    FLAG_ACK
}

fn open(groups: u32, flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    // No protocol is number 0, NETLINK_ROUTE.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Receives a datagram of the kernel; those of other senders are skipped.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        let received = rustix::net::recvfrom(socket, &mut *buffer, RecvFlags::TRUNC);
        let (_, length, sender) = match received {
            Err(rustix::io::Errno::INTR) => continue,
            result => result?,
        };
        let from_kernel = sender
            .and_then(|sender| SocketAddrNetlink::try_from(sender).ok())
            .is_some_and(|sender| sender.pid() == 0);
        if length > buffer.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "a netlink datagram of {length} bytes is longer than the buffer of {}",
                    buffer.len()
                ),
            ));
        }
        if from_kernel {
            return Ok(length);
        }
    }
}

/// Returns the result in a message that ends an answer.
fn status(message: &Message<'_>) -> io::Result<()> {
    let code = wire::u32_at(message.payload, 0).map_or(0, u32::cast_signed);
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) }
}
