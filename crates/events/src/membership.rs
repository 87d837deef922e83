//! Workers that join and leave, and policies that change.

use crate::EventError;
use crate::inner::Inner;
use crate::port::Port;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

impl Inner {
    /// As [`Dispatcher::regroup`](crate::dispatch::Dispatcher::regroup); descriptors follow.
    pub fn regroup(
        &self,
        policy: Option<&str>,
        change: impl FnOnce(&mut Vec<Arc<Port>>),
    ) -> Result<(), EventError> {
        let sets = self.dispatch.regroup(policy, change)?;
        self.watches.settle(&self.dispatch, &sets.new);
        // Parked workers are marked idle in the old set only.
        sets.old.ports.iter().for_each(|port| port.epoll.ring());
        Ok(())
    }

    /// Removes the worker of `port`. Its queued events move to others; events pinned to it are dropped.
    pub fn leave(&self, port: &Arc<Port>) {
        self.retain_departed(port);
        // Leaving cannot fail.
        let _ = self.regroup(None, |ports| ports.retain(|other| other.number != port.number));
        self.watch_departed(port);
        port.leave().into_iter().for_each(|event| self.dispatch.drop_pinned(event));
    }

    /// The thread of `port` is about to leave. Keeps its epoll if that keeps edges. If there is no descriptor
    /// left for that, another worker reports what is ready again.
    fn retain_departed(&self, port: &Arc<Port>) {
        if port.kept_edges.load(SeqCst) > 0 && self.open_departed().is_ok() {
            self.watches.departed.add(port);
        }
    }

    /// The thread of `port` has left, and all descriptors that could move have moved. Only now may its epoll
    /// be watched, because until now it watched the others' like every worker's.
    fn watch_departed(&self, port: &Port) {
        self.watches.departed.end_empty(port);
        if self.watches.departed.watch(port).is_err() {
            self.watches.departed.end(port);
            self.watches.settle(&self.dispatch, &self.dispatch.workers());
        }
    }
}
