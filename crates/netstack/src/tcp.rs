//! TCP listeners as lanes see them: what several lanes accept for one kernel socket.

use crate::woken::{Ready, Token, Tokens, Woken};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// A TCP listener, which every lane accepts for.
#[derive(Debug)]
pub struct TcpListener {
    local: SocketAddr,
    tokens: Tokens,
    /// For each lane: it may have a connection.
    pending: Box<[AtomicBool]>,
}

impl TcpListener {
    /// Returns a listener on `local` for so many `lanes`, whose readiness is reported with `token`.
    #[must_use]
    pub fn new(local: SocketAddr, lanes: usize, token: Token) -> TcpListener {
        let pending = (0..lanes).map(|_| AtomicBool::new(false)).collect();
        TcpListener { local, tokens: Tokens::new(token), pending }
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Reports its readiness with `token` as well.
    pub fn add_token(&self, token: Token) {
        self.tokens.add(token);
    }

    /// Reports its readiness with `token` no more.
    pub fn remove_token(&self, token: Token) {
        self.tokens.remove(token);
    }

    /// Returns whether `lane` may have a connection.
    #[must_use]
    pub fn is_pending(&self, lane: usize) -> bool {
        self.pending[lane].load(Ordering::Acquire)
    }

    /// Notes whether `lane` may have a connection. Under the lane's lock.
    pub(crate) fn set_pending(&self, lane: usize, pending: bool) {
        self.pending[lane].store(pending, Ordering::Release);
    }

    /// `lane` has connections: adds the handles to what is reported.
    pub(crate) fn wake(&self, lane: usize, woken: &mut Woken) {
        self.set_pending(lane, true);
        self.tokens.wake(Ready::READ, woken);
    }
}
