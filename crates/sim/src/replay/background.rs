//! Threads that serve no requests: where each is in its loop of sleeps and bursts.

use super::Background;
use crate::Random;
use heddle_core::Ns;

/// What a thread does next: it sleeps, then runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub sleep: Ns,
    pub run: Ns,
}

/// The position of one thread in its loop.
#[derive(Debug)]
pub struct Loop<'s> {
    bursts: &'s [(Ns, Ns)],
    next: usize,
    /// Its first turn, cut where the loop begins.
    first: Option<Turn>,
}

impl<'s> Loop<'s> {
    /// Begins somewhere in the loop, each instant equally likely.
    pub fn begin(thread: &'s Background, random: &mut Random) -> Loop<'s> {
        let bursts = &thread.bursts[..];
        if bursts.iter().all(|&(sleep, _)| sleep == Ns::ZERO) {
            // It never sleeps, so its bursts do not matter; however much is deducted, this one has no reachable end.
            return Loop { bursts, next: 0, first: Some(Turn { sleep: Ns::ZERO, run: Ns::MAX }) };
        }
        let sum: Ns = bursts.iter().fold(Ns::ZERO, |sum, &(sleep, run)| sum + sleep + run);
        let (mut past, mut next) = (Ns(random.below(sum.0)), 0);
        while past >= bursts[next].0 + bursts[next].1 {
            past -= bursts[next].0 + bursts[next].1;
            next += 1;
        }
        let (sleep, run) = bursts[next];
        let slept = past.min(sleep);
        let first = Turn { sleep: sleep - slept, run: run - (past - slept) };
        Loop { bursts, next: (next + 1) % bursts.len(), first: Some(first) }
    }

    /// Returns what the thread does now: bursts without a sleep between them are one.
    pub fn next(&mut self) -> Turn {
        let mut turn = self.first.take().unwrap_or_else(|| self.step());
        while turn.run < Ns::MAX && self.bursts[self.next].0 == Ns::ZERO {
            turn.run += self.step().run;
        }
        turn
    }

    fn step(&mut self) -> Turn {
        let (sleep, run) = self.bursts[self.next];
        self.next = (self.next + 1) % self.bursts.len();
        Turn { sleep, run }
    }
}
