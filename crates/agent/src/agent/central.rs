//! One agent for all CPUs.

use super::Realtime;
use super::realtime::{Home, OFFLINE_PAUSE, PAUSE, PAUSE_EVERY};
use super::threads::AgentThreads;
use heddle_core::{CpuId, Ns, Policy};

impl<P: Policy> AgentThreads<'_, P> {
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
        let mut home = self.home(CpuId(me as u16));
        while self.relay.await_turn(me) && !self.is_over() {
            let next = self.spin(CpuId(me as u16), &mut home);
            if let Some(next) = next {
                self.relay.pass(me, next.index());
            }
        }
    }

    /// Runs rounds without a pause until another thread wants `own`, or it is offline. Returns the CPU to which the
    /// agent moves; none at the end.
    fn spin(&self, own: CpuId, home: &mut Home) -> Option<CpuId> {
        let mut scheduler = self.scheduler();
        scheduler.set_own(Some(own));
        // The agent does not sleep on the queue, so messages need not wake it.
        let _ = self.backend.configure_queue(self.queues[0], false);
        let handoffs = self.backend.cpu(own).handoff;
        let mut pause_at = self.backend.now() + PAUSE_EVERY;
        while !self.is_over() {
            scheduler.round();
            self.show(&scheduler);
            let word = self.backend.cpu(own);
            home.keep(word.online);
            if word.handoff != handoffs || !word.online {
                let next = scheduler.next_spin_cpu();
                let next = next.filter(|&next| word.online || self.can_run_beside(next));
                if next.is_some() {
                    return next;
                }
            }
            match word.online {
                true => pause_at = self.pause_if_due(pause_at),
                // It spins on a CPU that is not its own.
                false => std::thread::sleep(OFFLINE_PAUSE.into()),
            }
        }
        None
    }

    /// Whether threads can run on a CPU while the agent spins on `own`.
    fn can_run_beside(&self, own: CpuId) -> bool {
        let mut others = (0..self.backend.cpus().len() as u16).map(CpuId).filter(|&cpu| cpu != own);
        others.any(|cpu| self.backend.cpu(cpu).online)
    }

    fn pause_if_due(&self, due: Ns) -> Ns {
        let now = self.backend.now();
        match self.realtime {
            Realtime::Off => std::thread::yield_now(),
            Realtime::Full { .. } if now < due => std::hint::spin_loop(),
            Realtime::Full { .. } => {
                std::thread::sleep(PAUSE.into());
                return now + PAUSE_EVERY;
            }
        }
        due
    }
}
