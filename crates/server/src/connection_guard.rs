//! The count of open connections.

use std::sync::Arc;

use super::limits::Limit;
use super::service::Service;
use heddle_store::Section;

/// One open connection; subtracted from the count when dropped, even by a panic.
pub(super) struct Connection<S>(Arc<Service<S>>)
where
    S: Section;

impl<S: Section> Connection<S> {
    /// Adds a connection to the count; `None` if there are too many.
    pub(super) fn open(service: &Arc<Service<S>>) -> Option<Connection<S>> {
        if service.connections.enter() {
            service.counters.connections_accepted.add();
            return Some(Connection(service.clone()));
        }
        service.counters.connections_refused.add();
        service.bounds.hit(Limit::Connections);
        None
    }
}

impl<S: Section> Drop for Connection<S> {
    fn drop(&mut self) {
        self.0.connections.leave();
    }
}
