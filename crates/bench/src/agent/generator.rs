//! The thread that generates load, next to whatever else its CPU does.

use heddle_load::Pace;
use heddle_sys::scheduling::{self, Scheduling};
use std::io;

/// Above threads that the `rt` backend commits, below agents.
const PRIORITY: u32 = 2;
/// Most time that it may run without a pause, in microseconds. It pauses 20,000 times a second, so only a fault takes
/// that long, and then the kernel ends this process. Servers inherit the limit and cannot raise it: it is theirs
/// (`by_hand`).
const LONGEST: u64 = 60_000_000;

/// The calling thread is real-time and on one CPU until this is dropped. An ordinary one was late for most of its sends
/// as soon as anything else ran on its CPU, such as the agent, and its runs were invalid.
pub(super) struct Generator {
    allowed: Vec<u32>,
    is_realtime: bool,
}

impl Generator {
    /// Moves the calling thread to `cpu`. Without the privilege it stays ordinary, and polls.
    ///
    /// # Errors
    /// It may not use that CPU.
    pub fn on(cpu: u32) -> io::Result<Generator> {
        let allowed = heddle_sys::thread::affinity()?;
        heddle_sys::thread::pin(&[cpu])?;
        let realtime = scheduling::limit_realtime(LONGEST)
            .and_then(|()| scheduling::set(0, Scheduling::fifo(PRIORITY)));
        Ok(Generator { allowed, is_realtime: realtime.is_ok() })
    }

    /// How it waits: a real-time thread must not poll, since nothing else would run on its CPU.
    pub fn pace(&self) -> Pace {
        if self.is_realtime { Pace::Sleep } else { Pace::Busy }
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // Both were so before.
        let _ = scheduling::set(0, Scheduling::ORDINARY);
        let _ = heddle_sys::thread::pin(&self.allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_is_ordinary_and_on_its_cpus_again() {
        let test = || {
            let before = heddle_sys::thread::affinity().unwrap();
            let generator = Generator::on(before[0]).unwrap();
            assert_eq!(heddle_sys::thread::affinity().unwrap(), [before[0]]);
            let realtime = scheduling::of(0).unwrap() == Scheduling::fifo(PRIORITY);
            assert_eq!(generator.pace() == Pace::Sleep, realtime);
            drop(generator);
            assert_eq!(scheduling::of(0).unwrap(), Scheduling::ORDINARY);
            assert_eq!(heddle_sys::thread::affinity().unwrap(), before);
        };
        std::thread::spawn(test).join().unwrap();
    }
}
