//! One agent for all CPUs.

use super::Realtime;
use super::crew::Crew;
use super::realtime::{BREATH, BREATH_EVERY};
use heddle_core::{CpuId, Ns, Policy};

impl<P: Policy> Crew<'_, P> {
    /// Sleeps while nothing happens and no quantum ends.
    pub(super) fn sleep_centrally(&self) {
        let mut share = self.share(0);
        while !self.is_over() {
            let mut scheduler = self.scheduler();
            let round = scheduler.round();
            self.show(&scheduler);
            drop(scheduler);
            self.rest(&mut share, self.queues[0], &round);
        }
    }

    /// Spins on CPU `me` while it is the active one.
    pub(super) fn spin_centrally(&self, me: usize) {
        while self.relay.await_turn(me) && !self.is_over() {
            let heir = self.spin(CpuId(me as u16));
            if let Some(heir) = heir {
                self.relay.pass(me, heir.index());
            }
        }
    }

    /// Rounds without a pause until somebody else wants `own`: then the CPU to which the agent goes. None at the end.
    fn spin(&self, own: CpuId) -> Option<CpuId> {
        let mut scheduler = self.scheduler();
        scheduler.set_own(Some(own));
        // Nobody sleeps on it, so nobody needs to be woken.
        let _ = self.backend.configure_queue(self.queues[0], false);
        let wanted = self.backend.cpu(own).handoff;
        let mut breath = self.backend.now() + BREATH_EVERY;
        while !self.is_over() {
            scheduler.round();
            self.show(&scheduler);
            if self.backend.cpu(own).handoff != wanted
                && let Some(heir) = scheduler.refuge()
            {
                return Some(heir);
            }
            breath = self.breathe(breath);
        }
        None
    }

    fn breathe(&self, due: Ns) -> Ns {
        let now = self.backend.now();
        match self.realtime {
            Realtime::Off => std::thread::yield_now(),
            Realtime::Full { .. } if now < due => std::hint::spin_loop(),
            Realtime::Full { .. } => {
                std::thread::sleep(BREATH.into());
                return now + BREATH_EVERY;
            }
        }
        due
    }
}
