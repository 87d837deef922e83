//! What an [`super::server::EventServer`] speaks.

use std::sync::Arc;
use std::time::Instant;

use crate::counters::Gauge;
use crate::limits::{Bounds, Limit, Waits};
use crate::session::NextStep;

/// One connection's conversation, apart from its socket: bytes in, replies out.
///
/// It holds no more than one request that is not complete and [`Conversation::replies`], which
/// [`Conversation::advance`] adds to only while they are short.
pub(crate) trait Conversation: Send {
    /// Takes what was read.
    fn push(&mut self, bytes: &[u8]);
    /// Performs requests that are complete, until there are none or the replies are long.
    fn advance(&mut self) -> NextStep;
    /// The client sends no more.
    fn end(&mut self);
    /// For what the client is waited, once all that is here is answered.
    fn waits(&self) -> Waits;
    /// Tells the client of a limit, as the last word, where the protocol has one.
    fn refuse(&mut self, limit: Limit);
    /// Before a wait: memory that is not needed goes.
    fn settle(&mut self);
    /// What is to be written; the caller clears it once it is.
    fn replies(&mut self) -> &mut Vec<u8>;
}

/// What all connections of a server share.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// One connection's part.
    type Conversation: Conversation;

    /// The words that one too many is sent away with.
    const TOO_MANY: &'static [u8];

    /// Begins a conversation, unless that is one too many.
    fn open(&self) -> Option<Self::Conversation>;

    /// What clients may take.
    fn bounds(&self) -> &Arc<Bounds>;

    /// A connection could not be accepted.
    fn accept_failed(&self) {}

    /// The answer to a datagram that came at `received`, where such are spoken, if it deserves one.
    fn datagram(&self, bytes: &[u8], received: Instant) -> Option<Vec<u8>> {
        let _ = (bytes, received);
        None
    }

    /// An answer to a datagram could not be sent.
    fn send_failed(&self) {}
}

/// The connections of a protocol that counts nothing else.
pub(super) struct Clients {
    count: Arc<Gauge>,
    pub(super) bounds: Arc<Bounds>,
}

/// One of them; counted out when dropped.
#[derive(Debug)]
pub(super) struct Client(Arc<Gauge>);

impl Clients {
    pub(super) fn new(most: usize, bounds: &Arc<Bounds>) -> Clients {
        Clients { count: Arc::new(Gauge::new(most)), bounds: bounds.clone() }
    }

    /// Counts one in, unless there are too many.
    pub(super) fn enter(&self) -> Option<Client> {
        if self.count.enter() {
            return Some(Client(self.count.clone()));
        }
        self.bounds.hit(Limit::Connections);
        None
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.leave();
    }
}
