//! One connection's conversation, apart from its socket.

use std::sync::Arc;

use super::limits::{Limit, Reservation, Waits};
use super::service::Service;
use super::wire::{Turn, Wire};
use heddle_store::Section;

/// Replies are written once there are this many bytes.
pub(super) const FLUSH_AT: usize = 64 << 10;
/// Bytes per read from a connection.
pub(super) const READ_SIZE: usize = 16 << 10;
/// Bytes read and discarded after the last reply, so that the client sees it: the system resets a connection
/// that is closed with unread input, and a reset can destroy what the client has not read.
pub(super) const LINGER: usize = 1 << 20;

/// What to do once the replies so far are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Call [`Session::advance`] again: more requests have arrived.
    Advance,
    /// Read from the connection.
    Read,
    /// Close the connection.
    Close,
}

/// Bytes in, replies out.
pub(super) struct Session<S> {
    service: Arc<Service<S>>,
    wire: Wire,
    replies: Vec<u8>,
    hold: Reservation,
}

impl<S: Section> Session<S> {
    pub(super) fn new(service: Arc<Service<S>>) -> Session<S> {
        let wire = Wire::new(&service);
        let hold = Reservation::new(&service.bounds);
        Session { service, wire, replies: Vec::new(), hold }
    }

    /// Takes bytes that were read.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.wire.push(bytes);
    }

    /// What the connection waits for once everything received is answered.
    pub(super) fn waits(&self) -> Waits {
        if self.wire.is_mid_request() { Waits::Request } else { Waits::Idle }
    }

    /// Sends the client the error of a limit as the last reply.
    pub(super) fn refuse(&mut self, limit: Limit) {
        // A client between requests would take it for the answer to its next one.
        if limit != Limit::Idle {
            let text = self.service.bounds.explain(limit).to_string();
            self.wire.error(&mut self.replies, &text);
        }
    }

    /// Called before a wait: frees buffers that are not needed.
    pub(super) fn settle(&mut self) {
        self.wire.settle();
        self.hold.settle(self.wire.held(), &mut self.replies);
    }

    /// The client sends no more: half a request is answered with an error.
    pub(super) fn end(&mut self) {
        if self.wire.is_mid_request() {
            self.service.counters.protocol_errors.add();
            self.wire.ended(&mut self.replies);
        }
    }

    /// The replies to write; the caller clears them once they are written.
    pub(super) fn replies(&mut self) -> &mut Vec<u8> {
        &mut self.replies
    }

    /// Performs the requests that are complete.
    pub(super) fn advance(&mut self) -> NextStep {
        while self.replies.len() < FLUSH_AT {
            if let Err(limit) = self.hold.input(self.wire.held()) {
                self.refuse(limit);
                return NextStep::Close;
            }
            match self.wire.perform(&self.service, &mut self.hold, &mut self.replies) {
                Turn::Done => {}
                Turn::Read => return NextStep::Read,
                Turn::Close => return NextStep::Close,
            }
            // Any answer counts, be it an error or the list of commands: it is kept until the client reads it.
            if let Err(limit) = self.hold.reply(self.replies.capacity()) {
                self.refuse(limit);
                return NextStep::Close;
            }
        }
        NextStep::Advance
    }
}
