//! Remote procedure calls that do nothing: a frame is four bytes of length in network order, then that many
//! bytes; each frame is sent back unchanged (SKQ, section 6: the echo server).

use std::sync::Arc;

use super::protocol::{Client, Clients, Conversation, Protocol};
use crate::limits::{Bounds, Limit, Reservation, Waits};
use crate::session::{FLUSH_AT, NextStep};

/// The longest frame; a client that announces a longer one is cut off.
pub const MAX_FRAME: usize = 1 << 20;
/// Bytes of the length.
const HEAD: usize = 4;

/// The echo.
pub(crate) struct Echo(Clients);

impl Echo {
    pub(crate) fn new(max_connections: usize, bounds: &Arc<Bounds>) -> Echo {
        Echo(Clients::new(max_connections, bounds))
    }
}

/// State of one connection.
pub(crate) struct EchoConversation {
    unread: Vec<u8>,
    at: usize,
    replies: Vec<u8>,
    hold: Reservation,
    _client: Option<Client>,
}

impl Protocol for Echo {
    type Conversation = EchoConversation;

    /// It is closed without a reply: the protocol has no error frame.
    fn too_many(&self) -> &'static [u8] {
        b""
    }

    fn open(&self) -> Option<EchoConversation> {
        self.0.enter().map(|client| EchoConversation::new(Some(client), &self.0.bounds))
    }

    fn bounds(&self) -> &Arc<Bounds> {
        &self.0.bounds
    }
}

impl EchoConversation {
    fn new(client: Option<Client>, bounds: &Arc<Bounds>) -> EchoConversation {
        let hold = Reservation::new(bounds);
        EchoConversation { unread: Vec::new(), at: 0, replies: Vec::new(), hold, _client: client }
    }

    /// The length of the next frame with its header, once it is known.
    fn frame(&self) -> Option<usize> {
        let head = self.unread[self.at..].first_chunk::<HEAD>()?;
        Some(HEAD + u32::from_be_bytes(*head) as usize)
    }
}

impl Conversation for EchoConversation {
    fn push(&mut self, bytes: &[u8]) {
        self.unread.drain(..self.at);
        self.at = 0;
        self.unread.extend_from_slice(bytes);
    }

    fn advance(&mut self) -> NextStep {
        if self.hold.input(self.unread.capacity()).is_err() {
            return NextStep::Close;
        }
        while self.replies.len() < FLUSH_AT {
            match self.frame() {
                Some(len) if len > HEAD + MAX_FRAME => return NextStep::Close,
                Some(len) if len <= self.unread.len() - self.at => {
                    if self.hold.reply(self.replies.len() + len).is_err() {
                        return NextStep::Close;
                    }
                    self.replies.extend_from_slice(&self.unread[self.at..self.at + len]);
                    self.at += len;
                    // The buffer grows in steps.
                    if self.hold.reply(self.replies.capacity()).is_err() {
                        return NextStep::Close;
                    }
                }
                _ => {
                    if self.at == self.unread.len() {
                        // A connection that waits for its next request keeps no buffer.
                        (self.unread, self.at) = (Vec::new(), 0);
                    }
                    return NextStep::Read;
                }
            }
        }
        NextStep::Advance
    }

    /// Half a frame is not echoed.
    fn end(&mut self) {}

    fn waits(&self) -> Waits {
        if self.at < self.unread.len() { Waits::Request } else { Waits::Idle }
    }

    fn refuse(&mut self, _: Limit) {}

    fn settle(&mut self) {
        self.hold.settle(self.unread.capacity(), &mut self.replies);
    }

    fn replies(&mut self) -> &mut Vec<u8> {
        &mut self.replies
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ClientLimits;

    fn talk() -> EchoConversation {
        EchoConversation::new(None, &Bounds::new(ClientLimits::default(), 1))
    }

    #[test]
    fn frames_come_back_whole_however_they_arrive() {
        let frames = [&b"\0\0\0\x03abc"[..], b"\0\0\0\0", b"\0\0\0\x01z"].concat();
        let mut talk = talk();
        for byte in &frames {
            talk.push(&[*byte]);
            assert_eq!(talk.advance(), NextStep::Read);
        }
        assert_eq!(*talk.replies(), frames);
    }

    #[test]
    fn a_frame_that_is_too_long_ends_the_connection_after_those_before_it() {
        let mut talk = talk();
        talk.push(b"\0\0\0\x01z\xff\xff\xff\xff");
        assert_eq!(talk.advance(), NextStep::Close);
        assert_eq!(talk.replies(), b"\0\0\0\x01z");
    }

    #[test]
    fn many_replies_are_written_before_more_are_made() {
        let mut talk = talk();
        talk.push(&b"\0\0\0\x04four".repeat(FLUSH_AT / 4));
        assert_eq!(talk.advance(), NextStep::Advance);
        let first = std::mem::take(talk.replies()).len();
        assert!((FLUSH_AT..FLUSH_AT + 8).contains(&first));
        assert_eq!(talk.advance(), NextStep::Advance);
        talk.replies().clear();
        assert_eq!(talk.advance(), NextStep::Read);
    }
}
