//! Epolls of workers that have left, which keep the edges of descriptors that were ready at that time
//! ([`crate::watch`]).
//!
//! Each such epoll is registered in an epoll of the queue's own, which all workers watch like any pump
//! ([`crate::sources`]): the worker that finds it ready fetches the event. All idle workers are woken,
//! because an epoll cannot be watched exclusively. These descriptors are few, and each moves to a worker once
//! one of its next events is released while it is not ready. When the last one has moved, the epoll is
//! closed.

use crate::port::Port;
use heddle_sys::epoll::{Epoll, READ};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, OnceLock};

/// The departed ports of a queue.
#[derive(Debug, Default)]
pub(crate) struct DepartedPorts {
    /// A leaf lock.
    ports: Mutex<Vec<Arc<Port>>>,
    /// Contains their epolls; opened for the first one.
    pub epoll: OnceLock<Epoll>,
    pub opening: Mutex<()>,
}

impl DepartedPorts {
    pub fn add(&self, port: &Arc<Port>) {
        self.ports.lock().unwrap().push(Arc::clone(port));
    }

    pub fn all(&self) -> Vec<Arc<Port>> {
        self.ports.lock().unwrap().clone()
    }

    /// Returns the departed port with this number.
    pub fn find(&self, number: u32) -> Option<Arc<Port>> {
        self.ports.lock().unwrap().iter().find(|port| port.number == number).cloned()
    }

    /// One descriptor fewer is kept in the epoll of this port.
    pub fn end_one(&self, number: u32) {
        if let Some(port) = self.find(number) {
            port.kept_edges.fetch_sub(1, SeqCst);
            self.end_empty(&port);
        }
    }

    pub fn end_empty(&self, port: &Port) {
        if port.kept_edges.load(SeqCst) == 0 {
            self.end(port);
        }
    }

    pub fn end(&self, port: &Port) {
        let mut ports = self.ports.lock().unwrap();
        if let Some(at) = ports.iter().position(|one| one.number == port.number) {
            ports.swap_remove(at);
            self.epoll.get().inspect(|epoll| epoll.unwatch(port.epoll.as_raw_fd()));
        }
    }

    /// Has the workers watch the epoll of `port`.
    pub fn watch(&self, port: &Port) -> std::io::Result<()> {
        let ports = self.ports.lock().unwrap();
        let is_there = ports.iter().any(|one| one.number == port.number);
        let Some(epoll) = self.epoll.get().filter(|_| is_there) else { return Ok(()) };
        epoll.watch(port.epoll.as_raw_fd(), port.number.into(), READ, false)
    }
}
