//! The application's calls (RFC 9293, section 3.10).

use super::{AckDue, Connection, Context, Fin};
use crate::config::Config;
use crate::error::Error;
use crate::output::Output;
use crate::state::State;
use heddle_core::Ns;

impl Connection {
    /// Copies received bytes into `to`; 0 is the end of the stream.
    pub fn read(
        &mut self,
        to: &mut [u8],
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) -> Result<usize, Error> {
        self.check_readable()?;
        let count = self.receive.buffer.read(cx.pool, to);
        if count > 0 && self.has_window_update(cx) {
            self.receive.ack = AckDue::Now;
            self.transmit(cx, out);
        }
        Ok(count)
    }

    /// Copies received bytes into `to` and keeps them.
    pub fn peek(&self, to: &mut [u8], cx: &Context<'_>) -> Result<usize, Error> {
        self.check_readable()?;
        let length = to.len().min(self.receive.buffer.len() as usize);
        self.receive.buffer.copy_to(cx.pool, &mut to[..length]);
        Ok(length)
    }

    /// Whether a read would not block.
    pub fn is_readable(&self) -> bool {
        self.check_readable() != Err(Error::WouldBlock)
    }

    /// Bytes that a write would take.
    pub fn room(&self, config: &Config) -> usize {
        let room = config.send_buffer.saturating_sub(self.send.buffer.len());
        if self.check_writable().is_ok() { room as usize } else { 0 }
    }

    /// Whether the other end has acknowledged all that was written, and the FIN if it was asked for.
    pub fn is_delivered(&self) -> bool {
        self.send.buffer.is_empty()
            && self.send.una == self.send.nxt
            && self.send.fin != Fin::Queued
    }

    /// The handshake took `rtt`, if that is known. Probes begin if they are wanted.
    pub fn accepted(&mut self, rtt: Option<Ns>) {
        if let Some(rtt) = rtt {
            self.send.rtt.sample(rtt);
        }
        self.start_keep_alive();
    }

    /// Sends what the output refused.
    pub fn resume(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        match self.state {
            State::SynSent | State::SynReceived => self.send_syn(cx, out),
            _ => self.transmit(cx, out),
        }
    }

    /// Whether a read finds bytes or the end of the stream.
    fn check_readable(&self) -> Result<(), Error> {
        if !self.receive.buffer.is_empty() || self.receive.is_finished || self.receive.is_shut {
            return Ok(());
        }
        match (self.state, self.error) {
            (_, Some(error)) => Err(error),
            (State::SynSent | State::SynReceived, _) => Err(Error::NotConnected),
            (State::Closed, None) => Ok(()),
            _ => Err(Error::WouldBlock),
        }
    }

    /// Takes as much of `bytes` as there is room for, and sends what may be sent.
    pub fn write(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) -> Result<usize, Error> {
        self.check_writable()?;
        let room = cx.config.send_buffer.saturating_sub(self.send.buffer.len()) as usize;
        if cx.has_models() {
            self.note_app_limit();
        }
        let bytes_that_fit = &bytes[..bytes.len().min(room)];
        let count = self.send.buffer.push(cx.pool, bytes_that_fit);
        self.send.wants_room |= count < bytes.len();
        self.transmit(cx, out);
        if count == 0 && !bytes.is_empty() { Err(Error::WouldBlock) } else { Ok(count) }
    }

    /// Whether a writer waits for room.
    pub fn wants_room(&self) -> bool {
        self.send.wants_room
    }

    /// Wakes a writer that waits for memory.
    pub fn memory_freed(&mut self) {
        if core::mem::take(&mut self.send.wants_room) {
            self.raise(crate::event::WRITABLE);
        }
    }

    fn check_writable(&self) -> Result<(), Error> {
        if let Some(error) = self.error {
            return Err(error);
        }
        match self.state {
            State::SynSent | State::SynReceived => Err(Error::NotConnected),
            State::Established | State::CloseWait if self.send.fin == Fin::None => Ok(()),
            _ => Err(Error::WriteShutdown),
        }
    }

    /// Ends the stream to the other end after what was written.
    pub fn shutdown_write(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        if self.send.fin != Fin::None || matches!(self.state, State::Closed | State::TimeWait) {
            return;
        }
        self.send.fin = Fin::Queued;
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            // The FIN goes when the handshake is over.
            _ => {}
        }
        self.transmit(cx, out);
    }

    /// Reads find the end of the stream after what has arrived and do not wait any more, as in Linux.
    pub fn shutdown_read(&mut self) {
        self.receive.is_shut = true;
        self.raise(crate::event::READABLE);
    }

    /// Sends a reset, if the other end knows of the connection, and ends it.
    pub fn abort(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        let is_known = self.state.is_synchronised() && self.state != State::TimeWait
            || self.state == State::SynReceived;
        if is_known {
            self.send_reset(cx, out);
        }
        if self.state != State::Closed && self.state != State::TimeWait {
            self.end(Some(Error::Aborted), cx);
        }
    }

    /// The application has given the connection up. Unread data is lost, and the other end must know (RFC 2525,
    /// section 2.17).
    pub fn close(&mut self, cx: &mut Context<'_>, out: &mut impl Output) {
        let is_unread = !self.receive.buffer.is_empty();
        self.is_attached = false;
        if self.close_reset
            || is_unread && self.state.is_synchronised()
            || !self.state.is_synchronised()
        {
            return self.abort(cx, out);
        }
        self.shutdown_write(cx, out);
        if self.state == State::FinWait2 {
            self.set_idle(cx.now + cx.config.fin_wait);
        }
    }

    /// Whether closing resets (SO_LINGER with a time of zero).
    pub fn set_close_reset(&mut self, is_set: bool) {
        self.close_reset = is_set;
    }

    /// Whether small segments are sent at once.
    pub fn set_nodelay(&mut self, is_set: bool, cx: &mut Context<'_>, out: &mut impl Output) {
        self.send.nodelay = is_set;
        self.transmit(cx, out);
    }
}
