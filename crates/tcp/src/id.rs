//! Names of connections and listeners.

/// A connection of a stack: an index with a generation, so that the id of a closed connection is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnectionId {
    /// The index, below [`Config::max_connections`](crate::Config::max_connections) rounded up to 64: a place for
    /// what a caller keeps about the connection.
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// All of it in 64 bits, for a caller that must put it into a word.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The id that [`to_bits`](Self::to_bits) made.
    pub fn from_bits(bits: u64) -> ConnectionId {
        ConnectionId { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// A listener of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ListenerId {
    /// The index: a place for what a caller keeps about the listener.
    pub fn index(self) -> usize {
        self.index as usize
    }
}
