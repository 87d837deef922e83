//! A connection that never blocks its thread.
//!
//! It is driven whenever its socket is ready. Replies are written first; while some cannot be, nothing more
//! is read or performed. So a client that does not read delays only itself, and what the server keeps for it
//! is bounded by one request and the replies to one read.

use rustix::net::sockopt::set_socket_linger;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use std::time::Instant;

use heddle::events::Interest;

use super::protocol::Conversation;
use crate::limits::{Bounds, LastSweep, Limit, Waits, Watch};
use crate::session::{LINGER, NextStep};

/// Steps (read, perform, write) of one connection before others have their turn.
const ROUNDS: usize = 16;

/// When to drive a connection again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// When input has arrived; `true` if a read has just found none.
    Read(bool),
    /// When there is room again.
    Room,
    /// Soon: it has more to do.
    Turn,
    /// Never: close it.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The client sends no more; closed when the replies are written.
    Ended,
    /// The server has sent its last reply; this is how many bytes it will still read.
    Lingering(usize),
}

/// A connection and its state.
pub(super) struct Connection<C> {
    stream: TcpStream,
    talk: C,
    /// Bytes of the replies already written.
    written: usize,
    stage: Stage,
    /// Nothing more is performed; the replies are written, then the connection lingers.
    closing: bool,
    watch: Watch,
    seen: LastSweep,
    /// The interest it is registered for.
    pub(super) interest: Interest,
}

impl<C: Conversation> Connection<C> {
    /// A connection that has just been accepted.
    pub(super) fn new(stream: TcpStream, talk: C) -> Connection<C> {
        let (written, stage, closing) = (0, Stage::Open, false);
        let (watch, seen) = (Watch::default(), LastSweep::default());
        let interest = Interest::READ;
        Connection { stream, talk, written, stage, closing, watch, seen, interest }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Does what can be done without waiting. `scratch` receives the bytes of one read.
    pub(super) fn drive(&mut self, scratch: &mut [u8]) -> Wants {
        // A socket error means that the client has vanished.
        let wants = self.advance(scratch).unwrap_or(Wants::Close);
        match (wants, self.stage) {
            (Wants::Room, _) => self.watch.waits(Waits::Reply),
            (Wants::Read(_), Stage::Lingering(_)) => self.watch.waits(Waits::Linger),
            (Wants::Read(_), _) => self.watch.waits(self.talk.waits()),
            (Wants::Turn | Wants::Close, _) => self.watch.works(),
        }
        self.talk.settle();
        wants
    }

    /// Ends the connection if it has hit a limit.
    pub(super) fn sweep(&mut self, now: Instant, bounds: &Bounds) {
        match self.seen.look(&self.watch, now, bounds) {
            None => {}
            Some(limit @ (Limit::Request | Limit::Idle)) if self.talk.replies().is_empty() => {
                self.talk.refuse(limit);
                self.closing = true;
                match self.flush() {
                    Ok(true) => self.watch.moves(Waits::Linger),
                    // The shutdown raises an event, whose handler closes it.
                    _ => drop(self.stream.shutdown(Shutdown::Both)),
                }
            }
            Some(_) => {
                self.watch.give_up(|| Ok(set_socket_linger(&self.stream, Some(Duration::ZERO))?));
                let _ = self.stream.shutdown(Shutdown::Both);
            }
        }
    }

    fn advance(&mut self, scratch: &mut [u8]) -> io::Result<Wants> {
        let mut has_all = false;
        for _ in 0..ROUNDS {
            if !self.flush()? {
                return Ok(Wants::Room);
            }
            match self.stage {
                Stage::Ended => return Ok(Wants::Close),
                Stage::Lingering(left) => return self.linger(left, scratch),
                Stage::Open => {}
            }
            match self.talk.advance() {
                NextStep::Advance => {}
                NextStep::Close => self.closing = true,
                // If a short read left something, an end of file for example, the level-triggered
                // registration reports it.
                NextStep::Read if has_all && self.talk.replies().is_empty() => {
                    return Ok(Wants::Read(false));
                }
                NextStep::Read => {
                    if !self.flush()? {
                        return Ok(Wants::Room);
                    }
                    if has_all {
                        return Ok(Wants::Read(false));
                    }
                    match self.read(scratch)? {
                        None => return Ok(Wants::Read(true)),
                        Some(n) => has_all = n < scratch.len(),
                    }
                }
            }
        }
        Ok(Wants::Turn)
    }

    /// Reads once; `None` if nothing has arrived.
    fn read(&mut self, scratch: &mut [u8]) -> io::Result<Option<usize>> {
        let n = match would_block(self.stream.read(scratch))? {
            None => return Ok(None),
            Some(n) => n,
        };
        if n == 0 {
            self.talk.end();
            self.stage = Stage::Ended;
        } else {
            self.talk.push(&scratch[..n]);
        }
        Ok(Some(n))
    }

    /// Writes the replies. Returns false while there is no room.
    fn flush(&mut self) -> io::Result<bool> {
        let replies = self.talk.replies();
        if self.written == 0 && !replies.is_empty() {
            self.watch.begins(replies.len());
        }
        while self.written < replies.len() {
            match would_block(self.stream.write(&replies[self.written..]))? {
                None => return Ok(false),
                Some(0) => return Err(ErrorKind::WriteZero.into()),
                Some(n) => {
                    self.written += n;
                    self.watch.moves(Waits::Reply);
                }
            }
        }
        replies.clear();
        self.written = 0;
        if self.closing && self.stage == Stage::Open {
            self.stream.shutdown(Shutdown::Write)?;
            self.stage = Stage::Lingering(LINGER);
        }
        Ok(true)
    }

    /// Discards what still arrives.
    fn linger(&mut self, mut left: usize, scratch: &mut [u8]) -> io::Result<Wants> {
        for _ in 0..ROUNDS {
            match would_block(self.stream.read(scratch))? {
                None => {
                    self.stage = Stage::Lingering(left);
                    return Ok(Wants::Read(true));
                }
                Some(n) if n == 0 || n > left => return Ok(Wants::Close),
                Some(n) => left -= n,
            }
        }
        self.stage = Stage::Lingering(left);
        Ok(Wants::Turn)
    }
}

/// `None` if the call would have blocked.
fn would_block(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(n) => Ok(Some(n)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        // Treated as no input: the registration is level-triggered.
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}
