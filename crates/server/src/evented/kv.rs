//! The key-value protocol.

use std::sync::Arc;
use std::time::Instant;

use super::protocol::{Conversation, Protocol};
use crate::connection_guard::Connection;
use crate::limits::{Bounds, Limit, Waits};
use crate::service::Service;
use crate::session::{NextStep, Session};
use heddle_store::NoSection;

/// RESP or memcached's protocol over connections, and datagrams.
pub(crate) struct Kv(pub(crate) Arc<Service<NoSection>>);

/// State of one connection.
pub(crate) struct KvConversation {
    session: Session<NoSection>,
    _guard: Connection<NoSection>,
}

impl Protocol for Kv {
    type Conversation = KvConversation;

    fn too_many(&self) -> &'static [u8] {
        self.0.too_many()
    }

    fn open(&self) -> Option<KvConversation> {
        let guard = Connection::open(&self.0)?;
        Some(KvConversation { session: Session::new(self.0.clone()), _guard: guard })
    }

    fn bounds(&self) -> &Arc<Bounds> {
        &self.0.bounds
    }

    fn accept_failed(&self) {
        self.0.counters.accept_errors.add();
    }

    fn datagram(&self, bytes: &[u8], received: Instant) -> Option<Vec<u8>> {
        let ticket = self.0.admit(bytes.len())?;
        ticket.service().datagram(bytes, received).map(|answer| answer.to_vec())
    }

    fn send_failed(&self) {
        self.0.counters.send_errors.add();
    }
}

impl Conversation for KvConversation {
    fn push(&mut self, bytes: &[u8]) {
        self.session.push(bytes);
    }

    fn advance(&mut self) -> NextStep {
        self.session.advance()
    }

    fn end(&mut self) {
        self.session.end();
    }

    fn waits(&self) -> Waits {
        self.session.waits()
    }

    fn refuse(&mut self, limit: Limit) {
        self.session.refuse(limit);
    }

    fn settle(&mut self) {
        self.session.settle();
    }

    fn replies(&mut self) -> &mut Vec<u8> {
        self.session.replies()
    }
}
