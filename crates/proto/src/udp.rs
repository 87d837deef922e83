//! Requests of the load generator, one per datagram.
//!
//! All integers are little-endian. A request is a header of 32 bytes, then the key's bytes when
//! [`FLAG_KEY_BYTES`] is set, then the value of a PUT up to the end of the datagram:
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u16 | [`MAGIC`], which holds the version |
//! | 2 | u8 | operation: GET 1, PUT 2, SCAN 3, PING 4 |
//! | 3 | u8 | flags |
//! | 4 | u32 | SCAN: how many keys |
//! | 8 | u64 | request id, echoed |
//! | 16 | u64 | the client's clock when it meant to send, echoed |
//! | 24 | u64 | key id; with [`FLAG_KEY_BYTES`] the length of the key |
//!
//! A response is 40 bytes: the same first 24 (byte 3 is the [`Status`], the count is the keys read), then
//!
//! | offset | type | field |
//! |---|---|---|
//! | 24 | u32 | service time, ns: from the first instruction of the handler to its answer |
//! | 28 | u32 | queueing time, ns: from the receipt of the datagram to the start of the handler |
//! | 32 | u32 | bytes of value read or written |
//! | 36 | u32 | [`digest`] of those bytes |
//!
//! The service time is wall time, so it includes time lost to preemption; slowdown divides by the service
//! time of an unloaded run. Values are not sent back: a SCAN of 2 ms reads a megabyte.

use heddle_core::Ns;

/// The bytes `H` and version 1.
pub const MAGIC: u16 = u16::from_le_bytes([b'H', 1]);
/// The key is given by its bytes after the header, not by its id.
pub const FLAG_KEY_BYTES: u8 = 1;
/// Bytes before the key and the value of a request.
pub const REQUEST_HEADER: usize = 32;
/// Bytes of a response.
pub const RESPONSE_LEN: usize = 40;
/// Bytes of the longest datagram that UDP carries over IPv4.
pub const MAX_DATAGRAM: usize = 65_507;
/// Bytes of a key that is given by its id.
pub const ID_KEY_LEN: usize = 16;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Read one key.
    Get = 1,
    /// Write one key.
    Put = 2,
    /// Read `count` keys in order, from the given one on.
    Scan = 3,
    /// Answer at once.
    Ping = 4,
}

impl Op {
    fn from_byte(byte: u8) -> Option<Op> {
        [Op::Get, Op::Put, Op::Scan, Op::Ping].into_iter().find(|op| *op as u8 == byte)
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// The key does not exist.
    NotFound = 1,
    /// The request is well formed but outside the server's limits.
    Refused = 2,
    /// The store failed.
    StoreError = 3,
}

impl Status {
    fn from_byte(byte: u8) -> Option<Status> {
        use Status::{NotFound, Ok, Refused, StoreError};
        [Ok, NotFound, Refused, StoreError].into_iter().find(|s| *s as u8 == byte)
    }
}

/// The key of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// The key that [`id_key`] names.
    Id(u64),
    /// Any other key.
    Bytes(&'a [u8]),
}

/// The store's key of dataset entry `id`: `key:000000000042`, the form that redis-benchmark uses.
///
/// Ids of more than twelve digits keep their last twelve.
///
/// ```
/// assert_eq!(&heddle_proto::udp::id_key(42), b"key:000000000042");
/// ```
pub fn id_key(id: u64) -> [u8; ID_KEY_LEN] {
    let mut key = *b"key:000000000000";
    let mut rest = id;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// A request as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// What to do.
    pub op: Op,
    /// Chosen by the client, echoed by the server.
    pub id: u64,
    /// When the client meant to send, on its own clock; echoed.
    pub sent: Ns,
    /// On which key; for a SCAN the first one.
    pub key: Key<'a>,
    /// SCAN: how many keys.
    pub count: u32,
    /// PUT: what to write.
    pub value: &'a [u8],
}

impl<'a> Request<'a> {
    /// Appends the datagram to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (flags, key, key_bytes) = match self.key {
            Key::Id(id) => (0, id, &[][..]),
            Key::Bytes(bytes) => (FLAG_KEY_BYTES, bytes.len() as u64, bytes),
        };
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[self.op as u8, flags]);
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.sent.0.to_le_bytes());
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(key_bytes);
        out.extend_from_slice(self.value);
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// [`Malformed`] if it is not a request of this version.
    pub fn decode(datagram: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let (header, body) = datagram
            .split_first_chunk::<REQUEST_HEADER>()
            .ok_or(Malformed::Short(datagram.len()))?;
        check_magic(header)?;
        let key = u64_at(header, 24);
        let (key, value) = match header[3] {
            0 => (Key::Id(key), body),
            FLAG_KEY_BYTES => split_key(body, key)?,
            flags => return Err(Malformed::Flags(flags)),
        };
        Ok(Request {
            op: Op::from_byte(header[2]).ok_or(Malformed::Op(header[2]))?,
            id: u64_at(header, 8),
            sent: Ns(u64_at(header, 16)),
            key,
            count: u32_at(header, 4),
            value,
        })
    }
}

/// A response as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The operation that was asked for.
    pub op: Op,
    /// How it ended.
    pub status: Status,
    /// The request's id.
    pub id: u64,
    /// The request's time.
    pub sent: Ns,
    /// Keys read.
    pub count: u32,
    /// From the start of the handler to its answer; saturates at 4.29 s.
    pub service: Ns,
    /// From receipt to the start of the handler; saturates at 4.29 s.
    pub queued: Ns,
    /// Bytes of value read or written; saturates.
    pub bytes: u32,
    /// [`digest`] of the values read.
    pub digest: u32,
}

impl Response {
    /// The datagram.
    pub fn encode(&self) -> [u8; RESPONSE_LEN] {
        let mut out = [0; RESPONSE_LEN];
        out[..2].copy_from_slice(&MAGIC.to_le_bytes());
        out[2] = self.op as u8;
        out[3] = self.status as u8;
        out[4..8].copy_from_slice(&self.count.to_le_bytes());
        out[8..16].copy_from_slice(&self.id.to_le_bytes());
        out[16..24].copy_from_slice(&self.sent.0.to_le_bytes());
        out[24..28].copy_from_slice(&saturated(self.service).to_le_bytes());
        out[28..32].copy_from_slice(&saturated(self.queued).to_le_bytes());
        out[32..36].copy_from_slice(&self.bytes.to_le_bytes());
        out[36..].copy_from_slice(&self.digest.to_le_bytes());
        out
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// [`Malformed`] if it is not a response of this version.
    pub fn decode(datagram: &[u8]) -> Result<Response, Malformed> {
        let bytes: &[u8; RESPONSE_LEN] =
            datagram.try_into().map_err(|_| Malformed::Short(datagram.len()))?;
        check_magic(bytes)?;
        Ok(Response {
            op: Op::from_byte(bytes[2]).ok_or(Malformed::Op(bytes[2]))?,
            status: Status::from_byte(bytes[3]).ok_or(Malformed::Flags(bytes[3]))?,
            id: u64_at(bytes, 8),
            sent: Ns(u64_at(bytes, 16)),
            count: u32_at(bytes, 4),
            service: Ns(u32_at(bytes, 24).into()),
            queued: Ns(u32_at(bytes, 28).into()),
            bytes: u32_at(bytes, 32),
            digest: u32_at(bytes, 36),
        })
    }
}

/// A datagram that is not one of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Too short for its header, or not the length of a response.
    #[error("{0} bytes cannot hold the header")]
    Short(usize),
    /// Another protocol or another version of this one.
    #[error("magic {0:#06x} is not {MAGIC:#06x}")]
    Magic(u16),
    /// An operation that does not exist.
    #[error("no operation has number {0}")]
    Op(u8),
    /// A flag or a status that does not exist.
    #[error("unknown flags or status {0:#04x}")]
    Flags(u8),
    /// The key is said to be longer than the datagram.
    #[error("a key of {0} bytes does not fit the datagram")]
    Key(u64),
}

/// Mixes `bytes` into `digest`, eight bytes a step: proof that a value was read, at memory speed.
pub fn digest(digest: u32, bytes: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = u64::from(digest) ^ bytes.len() as u64;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = word.try_into().map_or(0, u64::from_le_bytes);
        state = (state.rotate_left(5) ^ word).wrapping_mul(ODD);
    }
    for byte in words.remainder() {
        state = (state.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(ODD);
    }
    (state >> 32) as u32 ^ state as u32
}

fn check_magic(header: &[u8]) -> Result<(), Malformed> {
    match u16::from_le_bytes([header[0], header[1]]) {
        MAGIC => Ok(()),
        other => Err(Malformed::Magic(other)),
    }
}

fn split_key(body: &[u8], len: u64) -> Result<(Key<'_>, &[u8]), Malformed> {
    let at = usize::try_from(len).map_err(|_| Malformed::Key(len))?;
    let (key, value) = body.split_at_checked(at).ok_or(Malformed::Key(len))?;
    Ok((Key::Bytes(key), value))
}

fn saturated(ns: Ns) -> u32 {
    u32::try_from(ns.0).unwrap_or(u32::MAX)
}

/// Callers pass a header whose length covers `at + 4`.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
#[path = "udp_tests.rs"]
mod tests;
