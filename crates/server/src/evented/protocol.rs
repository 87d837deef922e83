//! The protocols of an [`super::server::EventServer`].

use std::sync::Arc;
use std::time::Instant;

use crate::counters::Gauge;
use crate::limits::{Bounds, Limit, Waits};
use crate::session::NextStep;

/// One connection's conversation, apart from its socket: bytes in, replies out.
///
/// It holds at most one incomplete request and [`Conversation::replies`], which [`Conversation::advance`]
/// extends only while they are short.
pub(crate) trait Conversation: Send {
    /// Takes what was read.
    fn push(&mut self, bytes: &[u8]);
    /// Performs requests that are complete, until there are none or the replies are long.
    fn advance(&mut self) -> NextStep;
    /// The client sends no more.
    fn end(&mut self);
    /// What the connection waits for once everything received is answered.
    fn waits(&self) -> Waits;
    /// Sends the client the error of a limit as the last reply, if the protocol has one.
    fn refuse(&mut self, limit: Limit);
    /// Called before a wait: frees buffers that are not needed.
    fn settle(&mut self);
    /// The replies to write; the caller clears them once they are written.
    fn replies(&mut self) -> &mut Vec<u8>;
}

/// The state that all connections of a server share.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// State of one connection.
    type Conversation: Conversation;

    /// The text sent to a connection beyond the limit.
    fn too_many(&self) -> &'static [u8];

    /// Starts a conversation; `None` if there are too many.
    fn open(&self) -> Option<Self::Conversation>;

    /// The limits of clients.
    fn bounds(&self) -> &Arc<Bounds>;

    /// Called when a connection could not be accepted.
    fn accept_failed(&self) {}

    /// Returns the answer to a datagram received at `received`, if there is one.
    fn datagram(&self, bytes: &[u8], received: Instant) -> Option<Vec<u8>> {
        let _ = (bytes, received);
        None
    }

    /// Called when an answer to a datagram could not be sent.
    fn send_failed(&self) {}
}

/// The connection count of a protocol that counts nothing else.
pub(super) struct Clients {
    count: Arc<Gauge>,
    pub(super) bounds: Arc<Bounds>,
}

/// One connection; subtracted from the count when dropped.
#[derive(Debug)]
pub(super) struct Client(Arc<Gauge>);

impl Clients {
    pub(super) fn new(most: usize, bounds: &Arc<Bounds>) -> Clients {
        Clients { count: Arc::new(Gauge::new(most)), bounds: bounds.clone() }
    }

    /// Adds one to the count; `None` if there are too many.
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
