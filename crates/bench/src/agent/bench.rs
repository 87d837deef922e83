//! All parts, in the order of their tables.

use super::delay::{self, DelayOptions};
use super::fate::{self, FateOptions};
use super::launch::Launcher;
use super::report::report;
use super::scaling::{self, ScalingOptions};
use super::search::{self, SearchOptions};
use super::server::{self, ServerOptions};
use super::services::{self, ServicesOptions};
use super::snap::{self, SnapOptions};
use super::table3::{self, Table3Options};
use super::vm::{self, VmOptions};
use super::{Part, System, group};
use crate::suite::{Outcome, Part as _, PartResult, Suite};
use heddle_agent::guardian::Kind;
use heddle_core::Ns;
use heddle_metrics::{Progress, Report, Results};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Options of `heddle bench agent`.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The parts to run, in the order of [`crate::suite::Part::ALL`].
    pub parts: Vec<Part>,
    /// The backend of the agents, or why there is none.
    pub backend: Result<Kind, String>,
    /// This binary.
    pub launcher: Launcher,
    /// Whether all parts are short, to try out and not to quote.
    pub quick: bool,
    /// A periodic thread next to hogs.
    pub delay: DelayOptions,
    /// Two services and batch work.
    pub services: ServicesOptions,
    /// Single operations.
    pub table3: Table3Options,
    /// A central agent over simulated CPUs.
    pub scaling: ScalingOptions,
    /// A server with antagonists.
    pub server: ServerOptions,
    /// A packet-processing service with antagonists.
    pub snap: SnapOptions,
    /// Search queries over simulated sockets and caches.
    pub search: SearchOptions,
    /// Virtual machines over simulated hyperthreads.
    pub vm: VmOptions,
    /// What happens to threads when agents die, are replaced, or are disturbed.
    pub fate: FateOptions,
}

/// The CPUs of this process: loads run on the last one, everything else on the first.
fn cpus() -> (u32, u32) {
    let all = heddle_sys::thread::affinity().unwrap_or_default();
    (all.first().copied().unwrap_or(0), all.last().copied().unwrap_or(0))
}

/// CPUs on which agents are killed, replaced and disturbed: all but the first, which is left to the rest of
/// the machine.
fn enclave() -> Vec<u32> {
    let all = heddle_sys::thread::affinity().unwrap_or_default();
    if all.len() > 1 { all[1..].to_vec() } else { all }
}

impl AgentOptions {
    /// All parts at their usual length, some ten minutes in total; with `quick`, one short round of each, not to quote.
    /// `program` is this binary's file, `wanted` the required backend.
    #[must_use]
    pub fn new(program: PathBuf, wanted: Option<Kind>, quick: bool) -> AgentOptions {
        let pick = |usual: u32, quickly: u32| if quick { quickly } else { usual };
        let ms = |usual: u32, quickly: u32| Ns::from_ms(pick(usual, quickly).into());
        let backend = super::backend_here(wanted);
        let kind = backend.as_ref().ok().copied();
        let (first, last) = cpus();
        let launcher = Launcher { program };
        let policies = [
            "priority",
            "shinjuku-shenango:quantum=1ms,long=4ms,check=1ms",
            "round-robin:quantum=4ms",
        ]
        .map(String::from);
        AgentOptions {
            parts: Part::ALL.to_vec(),
            backend,
            launcher: launcher.clone(),
            quick,
            delay: DelayOptions {
                systems: System::all(kind, &policies),
                cpu: last,
                hogs: 3,
                period: Ns::from_ms(2),
                work: Ns::from_us(50),
                rounds: pick(5, 1),
                duration: ms(4000, 500),
            },
            services: ServicesOptions::new(last, pick(5, 1), ms(3000, 500)),
            table3: Table3Options {
                launcher,
                rounds: pick(5, 1),
                samples: pick(2000, 50),
                agent_cpu: first,
                thread_cpu: last,
            },
            scaling: ScalingOptions::new(quick),
            server: ServerOptions::new(kind, first, last, quick),
            snap: SnapOptions::new(kind, first, last, quick),
            search: SearchOptions::new(quick),
            vm: VmOptions::new(quick),
            fate: FateOptions {
                cpus: enclave(),
                hogs: 4,
                rounds: pick(5, 1),
                storm: ms(10_000, 1500),
                length: ms(3000, 2000),
            },
        }
    }

    /// Sets other policies for the periodic thread; targets apply to the first.
    pub fn set_policies(&mut self, policies: &[String]) {
        self.delay.systems = System::all(self.backend.as_ref().ok().copied(), policies);
    }

    /// Sets the rounds of each part that has rounds.
    pub fn set_rounds(&mut self, rounds: u32) {
        let all = [
            &mut self.delay.rounds,
            &mut self.services.rounds,
            &mut self.table3.rounds,
            &mut self.scaling.rounds,
            &mut self.server.rounds,
            &mut self.snap.rounds,
            &mut self.fate.rounds,
        ];
        all.into_iter().for_each(|of| *of = rounds);
    }
}

impl Suite for AgentOptions {
    type Part = Part;

    const NAME: &'static str = "bench agent";

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn steps(&self) -> u64 {
        let of = |part: &Part| match part {
            Part::Delay => self.delay.systems.len() as u64 * u64::from(self.delay.rounds),
            Part::Services => self.services.steps(),
            Part::Table3 => self.table3.steps(),
            Part::Group | Part::Storm => 1,
            Part::Scaling => self.scaling.steps(),
            Part::RocksDb => self.server.steps(),
            Part::Snap => self.snap.steps(),
            Part::Search => self.search.steps(),
            Part::Vm => self.vm.steps(),
            Part::Recover | Part::Upgrade => self.fate.rounds.into(),
        };
        self.parts.iter().map(of).sum()
    }

    fn obstacle(&self, part: Part) -> Option<String> {
        match part {
            // The default scheduler's rows and the simulated machine need no backend.
            Part::Delay
            | Part::Services
            | Part::Table3
            | Part::Scaling
            | Part::RocksDb
            | Part::Snap
            | Part::Search
            | Part::Vm => None,
            Part::Group | Part::Recover | Part::Upgrade | Part::Storm => {
                self.backend.as_ref().err().map(|why| format!("no backend works here: {why}"))
            }
        }
    }

    fn lacks(&self, part: Part) -> Option<String> {
        let why = self.backend.as_ref().err()?;
        let alone = matches!(part, Part::Delay | Part::Table3 | Part::RocksDb | Part::Snap);
        alone.then(|| format!("the default scheduler only: {why}"))
    }

    fn measure(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        let launcher = &self.launcher;
        let kind = || self.backend.clone().map_err(io::Error::other);
        match part {
            Part::Delay => {
                let rows = delay::run(&self.delay, launcher, stop, progress)?;
                let tables = delay::table(&self.delay, &rows).into_iter().collect();
                let targets = delay::targets(&self.delay, &rows);
                Ok(PartResult { rows, tables, targets, ..PartResult::default() })
            }
            Part::Services => services::run(&self.services, launcher, stop, progress),
            Part::Table3 => {
                table3::run(&self.table3, self.backend.as_ref().ok().copied(), stop, progress)
            }
            Part::Group => group::run(&self.table3, kind()?, stop, progress),
            Part::Scaling => scaling::run(&self.scaling, stop, progress),
            Part::RocksDb => server::run(&self.server, launcher, stop, progress),
            Part::Snap => snap::run(&self.snap, launcher, stop, progress),
            Part::Search => search::run(&self.search, stop, progress),
            Part::Vm => vm::run(&self.vm, stop, progress),
            Part::Recover => fate::recover(&self.fate, kind()?, launcher, stop, progress),
            Part::Upgrade => fate::upgrade(&self.fate, kind()?, launcher, stop, progress),
            Part::Storm => fate::storm(&self.fate, kind()?, launcher, stop, progress),
        }
    }

    fn conditions(&self) -> Vec<String> {
        conditions(self)
    }

    fn report(&self, outcome: &Outcome<Part>, results: &Results) -> Report {
        report(self.conditions(), outcome, results)
    }
}

/// Conditions that a reader must know before quoting.
fn conditions(options: &AgentOptions) -> Vec<String> {
    let mut said = vec![
        format!(
            "{} rounds, systems in turn, medians with least and greatest; a ratio is of two runs of one round.",
            options.delay.rounds
        ),
        "Delays count from when the timer was due; a period that fell due while the thread waited counts, too.".into(),
        format!(
            "Loads run on CPU {}, agents and everything else on the others.",
            options.delay.cpu
        ),
    ];
    if options.backend == Ok(Kind::Rt) {
        said.push(
            "The rt backend: managed threads are above ordinary ones, and wait at SCHED_IDLE."
                .into(),
        );
    }
    if std::env::var_os("HEDDLE_VM").is_some() {
        said.push(
            "An emulated machine (QEMU without KVM): ratios of one run count, never a time.".into(),
        );
    }
    if options.quick {
        said.push("--quick: each part once and shortly, not to quote.".into());
    }
    said
}
