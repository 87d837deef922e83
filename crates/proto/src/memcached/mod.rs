//! The text protocol of memcached (its `doc/protocol.txt`): an incremental reader of requests and a writer of
//! replies.
//!
//! A request is a line of words. That of a storage command ends with the length of a data block, which
//! follows. The reader holds at most one line or one data block of the stream.
//!
//! Differences from memcached 1.6: keys with control characters are refused, as `protocol.txt` demands and memcached
//! does not check; the data block of a refused line is skipped if the line says how long it is, where memcached takes
//! it for a command; a line of keys has at most [`MAX_KEYS_LINE`] bytes. Neither the meta commands nor the binary
//! protocol are known.

mod line;
mod reader;
mod reply;

pub use reader::Reader;
pub use reply::{line, number, value};

/// The longest key, in bytes (`KEY_MAX_LENGTH` of memcached).
pub const MAX_KEY: usize = 250;
/// The longest line of a command that does not read, in bytes, as in memcached.
pub const MAX_LINE: usize = 2048;
/// The longest line of `get`, `gets`, `gat` and `gats`, which can name many keys.
pub const MAX_KEYS_LINE: usize = 64 << 10;
/// The longest value, in bytes: memcached's default limit of an item.
pub const MAX_VALUE: usize = 1 << 20;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `get`, `gets`, `gat` or `gats`.
    Get {
        /// What to read.
        keys: Keys,
        /// Return the unique number of each item too (`gets`, `gats`).
        with_cas: bool,
        /// The new expiry of each item (`gat`, `gats`).
        touch: Option<Expiry>,
    },
    /// A storage command with its data block.
    Store {
        /// What to store and when.
        command: Store,
        /// The data block.
        value: Vec<u8>,
    },
    /// `delete`
    Delete(Vec<u8>, Reply),
    /// `incr` or `decr`
    Count {
        /// Which item.
        key: Vec<u8>,
        /// Which way.
        direction: Direction,
        /// By how much.
        by: u64,
        /// Whether an answer is wanted.
        reply: Reply,
    },
    /// `touch`
    Touch(Vec<u8>, Expiry, Reply),
    /// `flush_all`, with the delay in seconds
    FlushAll(i64, Reply),
    /// `verbosity`, which has no effect
    Verbosity(Reply),
    /// `version`
    Version,
    /// `stats`, and the group of statistics, which can be empty
    Stats(Vec<u8>),
    /// `quit`
    Quit,
    /// A request that is not performed.
    Refused(Refusal, Reply),
    /// A storage command whose value is longer than [`MAX_VALUE`]; the value is skipped.
    TooLarge(Store),
}

impl Request {
    /// Whether the client wants an answer.
    pub fn reply(&self) -> Reply {
        match self {
            Request::Store { command, .. } | Request::TooLarge(command) => command.reply,
            Request::Delete(_, reply)
            | Request::Count { reply, .. }
            | Request::Touch(_, _, reply)
            | Request::FlushAll(_, reply)
            | Request::Verbosity(reply)
            | Request::Refused(_, reply) => *reply,
            Request::Get { .. } | Request::Version | Request::Stats(_) | Request::Quit => {
                Reply::Wanted
            }
        }
    }
}

/// A storage command without its data block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// When to store.
    pub condition: Condition,
    /// Under which key.
    pub key: Vec<u8>,
    /// Bits that the client gets back with the value.
    pub flags: u32,
    /// When the item ceases to exist.
    pub expiry: Expiry,
    /// Whether an answer is wanted.
    pub reply: Reply,
}

/// The condition of a storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// None (`set`).
    Always,
    /// The key has no item (`add`).
    Missing,
    /// The key has an item (`replace`).
    Present,
    /// The key has an item; the value goes behind its value (`append`).
    Append,
    /// The key has an item; the value goes before its value (`prepend`).
    Prepend,
    /// The key's item has this unique number (`cas`).
    Unchanged(u64),
}

/// Adding or subtracting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `incr`, which wraps at 64 bits
    Up,
    /// `decr`, which stops at zero
    Down,
}

/// Whether the client wants an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It waits for one.
    Wanted,
    /// The request ends in `noreply`.
    Unwanted,
}

/// Seconds as a client writes them: 0 is never, a negative number is at once, at most 30 days is relative, and
/// more is a Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry(pub i64);

impl Expiry {
    /// The longest relative time in seconds (`REALTIME_MAXDELTA` of memcached).
    const MOST_RELATIVE: i64 = 60 * 60 * 24 * 30;

    /// The Unix time in milliseconds at which an item stored at `now` ceases to exist; 0 is never.
    pub fn at_ms(self, now: u64) -> u64 {
        match self.0 {
            0 => 0,
            // The beginning of time, which is not 0.
            ..0 => 1,
            s @ ..=Self::MOST_RELATIVE => now.saturating_add(s.unsigned_abs() * 1000),
            s => s.unsigned_abs().saturating_mul(1000),
        }
    }
}

/// The keys of a request: at least one, each valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys(Vec<u8>);

impl Keys {
    /// The keys in the order of the request.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        line::words(&self.0)
    }
}

/// Why a request is not performed; the texts are memcached's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such command, or not this many words.
    #[error("ERROR")]
    Unknown,
    /// A key or a number that is none.
    #[error("CLIENT_ERROR bad command line format")]
    Format,
    /// More words after a `delete` than it has.
    #[error("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]")]
    DeleteUsage,
    /// The data block does not end where its length says.
    #[error("CLIENT_ERROR bad data chunk")]
    DataEnd,
    /// `incr` or `decr` by something that is not a number.
    #[error("CLIENT_ERROR invalid numeric delta argument")]
    Delta,
    /// `touch` or `gat` until something that is not a number.
    #[error("CLIENT_ERROR invalid exptime argument")]
    Expiry,
}

/// Input that ends the connection after the answer, since the start of the next request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// A line is beyond [`MAX_LINE`] or [`MAX_KEYS_LINE`]; memcached closes without a word.
    #[error("CLIENT_ERROR line too long")]
    Line,
    /// The first byte is that of the binary protocol.
    #[error("CLIENT_ERROR the binary protocol is not supported")]
    Binary,
}

#[cfg(test)]
mod tests;
