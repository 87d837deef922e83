//! A connection that never blocks its thread.
//!
//! It is driven whenever its socket is ready: replies are written first, and while some cannot be, nothing more
//! is read or performed. So a client that does not read holds up nobody but itself, and what the server keeps
//! for it is bounded by one request and the replies to what it sent at once.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use heddle::events::Interest;

use super::protocol::Conversation;
use crate::limits::{Bounds, LastSweep, Limit, Waits, Watch};
use crate::session::{LINGER, NextStep};

/// How often a connection reads, performs or writes before others have their turn.
const ROUNDS: usize = 16;

/// When to drive a connection again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// When something has come; `true` if a read has just said that there is nothing.
    Read(bool),
    /// When there is room again.
    Room,
    /// Soon: it has more to do.
    Turn,
    /// Never: it is to be closed.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The client sends no more; closed when the replies are written.
    Ended,
    /// The server has said its last word; this is how much it will still read.
    Lingering(usize),
}

/// A connection and what is going on in it.
pub(super) struct Connection<C> {
    stream: TcpStream,
    talk: C,
    /// How much of the replies is written.
    written: usize,
    stage: Stage,
    /// Nothing more is performed; the replies are written, then the connection lingers.
    closing: bool,
    watch: Watch,
    seen: LastSweep,
    /// For what it is registered.
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

    /// Does what can be done without waiting. `scratch` is what one read may bring.
    pub(super) fn drive(&mut self, scratch: &mut [u8]) -> Wants {
        // An error of the socket is the client's end: it has vanished.
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
                    // Told as an event, which closes it.
                    _ => drop(self.stream.shutdown(Shutdown::Both)),
                }
            }
            Some(_) => {
                self.watch.give_up(&self.stream);
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
                // What a short read has left, an end for example, the level-triggered registration tells.
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

    /// Reads once; none if nothing has come.
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

    /// Writes the replies. False while there is no room.
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

    /// Throws away what still comes.
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

/// None where the call would have waited.
fn would_block(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(n) => Ok(Some(n)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        // As if nothing had come: the registration is level-triggered.
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}
