//! What BBR needs of a connection. Others pay for none of it: they have no model.
//!
//! A connection that never has more to send than the initial window has none either: what its model would say is that
//! the path is fast enough. So exchanges of requests take neither its time nor its memory.

use super::{Connection, Context, Phase};
use crate::config::Congestion;
use crate::congestion::Ack;
use crate::scoreboard::Delivery;
use heddle_core::Ns;

impl Context<'_> {
    /// Whether connections follow a model of the path.
    pub(super) fn has_models(&self) -> bool {
        self.config.congestion == Congestion::Bbr
    }
}

impl Connection {
    /// There is more to send than the window lets go, or something was lost: now a model is of use.
    pub(super) fn start_model(&mut self, cx: &Context<'_>) {
        if cx.has_models() {
            let (mss, min_rtt) = (u32::from(self.send.mss), self.send.rtt.min());
            self.send.congestion.start_model(cx.now, mss, min_rtt);
        }
    }

    /// Whether the pacer lets a segment go now. If not, the connection is held back until a timer expires.
    pub(super) fn is_due(&mut self, now: Ns) -> bool {
        self.burst(now) > 0
    }

    /// How many bytes may leave at once.
    pub(super) fn burst(&mut self, now: Ns) -> u32 {
        let is_held = self.send.is_held;
        let Some(model) = self.send.congestion.model() else { return u32::MAX };
        // Once held back, not before a whole burst may go.
        let budget = if is_held && now < model.next_at() { 0 } else { model.budget(now) };
        self.send.is_held = budget == 0;
        budget
    }

    /// How many bytes may leave as one: not more than half of the window, so that others are under way.
    pub(super) fn longest_burst(&mut self, now: Ns) -> u32 {
        match self.burst(now) {
            u32::MAX => u32::MAX,
            burst => burst.min(self.send.congestion.cwnd / 2),
        }
    }

    /// When a connection that is held back may go on.
    pub(super) fn held_until(&self) -> Ns {
        self.send.congestion.known_model().map_or(Ns::ZERO, |model| model.next_at())
    }

    /// A segment of `length` bytes was sent, or sent again. `is_first`: nothing was in flight.
    pub(super) fn note_to_model(&mut self, length: u32, is_first: bool, now: Ns) {
        let mss = u32::from(self.send.mss);
        if let Some(model) = self.send.congestion.model() {
            model.sent(now, length, is_first, mss);
        }
    }

    /// The application writes: if it has kept the connection waiting, what is sent next is no measure of the path.
    pub(super) fn note_app_limit(&mut self) {
        let (unsent, pipe) = (self.unsent(), self.pipe());
        let is_waiting = unsent < u32::from(self.send.mss)
            && pipe < self.send.congestion.cwnd
            && self.send.board.next_lost().is_none();
        if let Some(model) = self.send.congestion.model().filter(|_| is_waiting) {
            model.limit(pipe);
        }
    }

    /// Takes an acknowledgement, after which `lost` more bytes are taken to be lost.
    pub(super) fn update_model(&mut self, delivery: &Delivery, lost: u32, now: Ns) {
        let ack = Ack {
            now,
            delivered: delivery.delivered,
            lost,
            in_flight: self.pipe(),
            sent_at: self.send.board.latest(),
            rtt: delivery.rtt,
            srtt: self.send.rtt.smoothed().unwrap_or(Ns::from_ms(1)),
            mss: u32::from(self.send.mss),
        };
        self.send.congestion.update_model(&ack);
    }

    /// `phase` begins: the window is for the model to say, after a round in which as much is sent as arrives.
    pub(super) fn lose(&mut self, phase: Phase, cx: &Context<'_>) {
        self.start_model(cx);
        let is_first = self.recovery.phase() == Phase::Open;
        let (pipe, mss) = (self.pipe(), u32::from(self.send.mss));
        let congestion = &mut self.send.congestion;
        let cwnd = congestion.cwnd;
        if let Some(model) = congestion.model() {
            model.lose(cwnd, is_first, phase == Phase::Loss);
        }
        congestion.cwnd = pipe + mss;
    }

    /// All that was in flight when the phase began has arrived.
    pub(super) fn recover_by_model(&mut self) {
        let cwnd = self.send.congestion.cwnd;
        if let Some(model) = self.send.congestion.model() {
            self.send.congestion.cwnd = model.recovered(cwnd);
        }
    }

    /// Gives memory back if nothing is in flight.
    pub(super) fn trim_model(&mut self, cx: &Context<'_>) {
        let is_idle = self.send.board.is_empty() && self.recovery.phase() == Phase::Open;
        if is_idle && !self.send.is_held {
            self.send.congestion.trim_model(self.initial_window(cx));
        }
    }
}
