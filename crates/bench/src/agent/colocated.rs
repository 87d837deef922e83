//! A server and its antagonists on one CPU, under any system.

use super::by_hand::ByHand;
use super::child::{ANTAGONISTS, AntagonistSpec};
use super::launch::{Enclave, Launcher};
use super::system::System;
use crate::kv::{ServerProcess, cpu_time};
use heddle_agent::guardian::Stage;
use heddle_core::Ns;
use heddle_load::Moment;
use heddle_sys::clock;
use std::io;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Most time for an agent to start on an emulated machine.
const STARTING: Duration = Duration::from_secs(90);

/// The process of the antagonists, with the server as its child; under an agent, both in an enclave.
pub(super) struct Colocated {
    // Ends before the cgroups and the enclave that it is in.
    server: ServerProcess,
    /// Its settings, which end with it.
    _by_hand: ByHand,
    enclave: Option<Enclave>,
}

impl Colocated {
    /// Starts `program` with `antagonists` on `cpu`, and waits until a line of its output makes `ready` return
    /// something.
    ///
    /// # Errors
    /// What `system` needs is missing; the program does not start.
    pub fn start<T>(
        launcher: &Launcher,
        (system, cpu): (&System, u32),
        antagonists: usize,
        program: &[String],
        stop: &AtomicBool,
        ready: impl Fn(&str) -> Option<T>,
    ) -> io::Result<(Colocated, T)> {
        let by_hand = ByHand::new(system)?;
        let enclave = match system {
            System::Agent { backend, policy, .. } => Some(Enclave::new(*backend, policy, &[cpu])),
            _ => None,
        };
        let words = command(launcher, &by_hand, (system, cpu), antagonists, program);
        let command: Command = match &enclave {
            Some(enclave) => launcher.under(enclave, &words),
            None => launcher.alone(&words),
        };
        let started = ServerProcess::start(&system.to_string(), command, stop, ready);
        let (server, found) = started.map_err(io::Error::other)?;
        Ok((Colocated { server, _by_hand: by_hand, enclave }, found))
    }

    /// The process of the antagonists.
    ///
    /// # Errors
    /// The guardian has not started it.
    pub fn antagonists(&self) -> io::Result<u32> {
        let Some(enclave) = &self.enclave else { return Ok(self.server.pid()) };
        let begin = Instant::now();
        while begin.elapsed() < STARTING {
            if let Some(pid) = enclave.find().and_then(|listed| listed.record.pid) {
                return Ok(pid);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(io::Error::other("the enclave is not to be found"))
    }

    /// Why the enclave does not match the measurement, if it does not.
    pub fn doubt(&self) -> Option<String> {
        let enclave = self.enclave.as_ref()?;
        let Some(listed) = enclave.find() else { return Some("the enclave is gone".into()) };
        let active = listed.record.stage == Stage::Active;
        (!active).then(|| listed.record.reason.unwrap_or_else(|| "no agent was there".into()))
    }
}

/// The antagonists with the server, each with what an operator writes before it.
fn command(
    launcher: &Launcher,
    by_hand: &ByHand,
    (system, cpu): (&System, u32),
    antagonists: usize,
    program: &[String],
) -> Vec<String> {
    // The server would inherit a nice value and SCHED_IDLE from this process, so the antagonists' threads set them.
    let spec = AntagonistSpec {
        antagonists,
        nice: if system == &System::Nice { 19 } else { 0 },
        idle: system == &System::Idle,
        cpus: if system.policy().is_some() { Vec::new() } else { vec![cpu] },
        program: by_hand.command(program, true),
    };
    let words = launcher.child(ANTAGONISTS, &spec);
    match by_hand {
        ByHand::Cgroups(..) => by_hand.command(&words, false),
        ByHand::Wrappers(..) => words,
    }
}

/// The antagonists' share of a CPU from a run's warm-up to its end.
pub(super) struct Share {
    process: u32,
    warmup: Ns,
    begin: Option<(Ns, Ns)>,
}

impl Share {
    /// Of the threads of `process`, which is not the server's.
    pub fn of(process: u32, warmup: Ns) -> Share {
        Share { process, warmup, begin: None }
    }

    /// To be called throughout the run.
    pub fn look(&mut self, moment: &Moment<'_>) {
        if self.begin.is_none() && moment.now >= self.warmup {
            self.begin = self.reading();
        }
    }

    /// In per cent of a CPU until now; none if nothing was measured.
    pub fn percent(&self) -> Option<f64> {
        let ((from, before), (to, after)) = self.begin.zip(self.reading())?;
        Some((after - before).as_secs_f64() / (to - from).as_secs_f64().max(1e-9) * 100.0)
    }

    /// The time, and the CPU time until then.
    fn reading(&self) -> Option<(Ns, Ns)> {
        cpu_time(self.process).ok().map(|used| (clock::now(), used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(system: &System) -> String {
        let launcher = Launcher { program: "heddle".into() };
        let by_hand = ByHand::new(system).unwrap();
        command(&launcher, &by_hand, (system, 1), 2, &["server".to_owned()]).join(" ")
    }

    #[test]
    fn settings_by_hand_reach_the_server_or_the_antagonists_only() {
        assert!(
            words(&System::Default)
                .contains(r#""nice":0,"idle":false,"cpus":[1],"program":["server"]"#)
        );
        assert!(words(&System::Nice).contains(r#""nice":19"#));
        assert!(words(&System::Idle).contains(r#""idle":true"#));
        let fifo = words(&System::Fifo);
        assert!(fifo.starts_with("heddle bench agent --child antagonists"), "{fifo}");
        assert!(fifo.contains(r#""chrt","-f","1","server"]"#), "{fifo}");
        assert!(words(&System::fair()).contains(r#""cpus":[],"program":["server"]"#));
    }

    #[test]
    fn a_share_begins_with_the_end_of_the_warmup() {
        let mut share = Share::of(std::process::id(), Ns(10));
        let tally = heddle_load::Tally::new(Ns::from_secs(1), [None; 3]);
        let at = |now: u64| Moment { now: Ns(now), end: Ns(30), tally: &tally };
        share.look(&at(5));
        assert_eq!(share.percent(), None);
        share.look(&at(12));
        let begin = share.begin.unwrap();
        share.look(&at(15));
        assert_eq!(share.begin.unwrap(), begin);
        assert!(share.percent().is_some_and(|percent| percent >= 0.0));
    }
}
