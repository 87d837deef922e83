//! How large segments may be on the path: RFC 1191, RFC 8201, and without their help RFC 4821.

use super::{Connection, Context, MIN_MSS};
use crate::output::Output;
use crate::scoreboard::Sent;
use crate::wire::TIMESTAMPS;

/// Segments are never made smaller than this.
const MIN_PAYLOAD: u16 = MIN_MSS - TIMESTAMPS as u16;

/// The search for the size that a path takes when it drops larger packets silently.
#[derive(Clone, Copy, Debug)]
pub struct BlackHole {
    /// The payload before segments were made smaller; 0 if they were not.
    full: u16,
    /// How often they were, since a full one was acknowledged.
    strikes: u8,
}

impl BlackHole {
    pub const NONE: BlackHole = BlackHole { full: 0, strikes: 0 };
}

impl Connection {
    /// Makes segments fit into packets of `mtu` bytes; returns whether they are smaller now.
    fn set_mss(&mut self, mtu: u16, cx: &mut Context<'_>) -> bool {
        let options = if self.has_timestamps() { TIMESTAMPS as u16 } else { 0 };
        let mss = mtu.saturating_sub(self.tuple.header_length() + options).max(MIN_PAYLOAD);
        let is_smaller = mss < self.send.mss;
        if is_smaller {
            self.send.mss = mss;
            cx.counters.mtu_reductions += 1;
        }
        is_smaller
    }

    /// A path takes packets of `mtu` bytes at most: what was larger is sent again.
    pub fn packet_too_big(&mut self, mtu: u16, cx: &mut Context<'_>, out: &mut impl Output) {
        if self.set_mss(mtu, cx) {
            self.rare.edit().black_hole = BlackHole::NONE;
            let mss = u32::from(self.send.mss);
            self.send.board.mark_lost_if(|_, sent| sent.payload() > mss);
            self.transmit(cx, out);
        }
    }

    /// Large segments that time out again and again may be too large for the path (RFC 4821, section 7.7).
    pub(super) fn detect_black_hole(&mut self, first: &Sent, cx: &mut Context<'_>) {
        let mtu = match self.timers.backoff {
            2 => 1280,
            4 => 576,
            _ => return,
        };
        let is_large = first.payload() > u32::from(mtu - self.tuple.header_length());
        let full = self.send.mss;
        if cx.config.black_hole_detection && is_large && self.set_mss(mtu, cx) {
            let known = &mut self.rare.edit().black_hole;
            let strikes = known.strikes + u8::from(self.timers.backoff == 2);
            *known = BlackHole { full: full.max(known.full), strikes };
        }
    }

    /// Recovery from timeouts is over. The path may have been down and not narrow: once, full segments are tried again.
    pub(super) fn retry_full_segments(&mut self) {
        let BlackHole { full, strikes } = self.rare.black_hole;
        if strikes == 1 && self.send.mss < full {
            self.send.mss = full;
        }
    }

    /// A segment with `payload` bytes was acknowledged.
    pub(super) fn payload_acknowledged(&mut self, payload: u16) {
        if let Some(rare) = self.rare.changed()
            && payload >= rare.black_hole.full
        {
            rare.black_hole = BlackHole::NONE;
        }
    }
}
