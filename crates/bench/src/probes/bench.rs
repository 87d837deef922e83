//! All parts, in the order of their tables.

use std::io;
use std::sync::atomic::AtomicBool;

use super::options::ProbesOptions;
use super::part::Part;
use super::programs::Programs;
use super::sources::KERNELS;
use super::{gaps, kernels, preempt, programs, report};
use crate::suite::{Outcome, PartResult, Suite};
use heddle_metrics::{Progress, Report, Results};

impl Suite for ProbesOptions {
    type Part = Part;

    const NAME: &'static str = "bench probes";

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn steps(&self) -> u64 {
        let compilers = self.compilers.len() as u64;
        let of = |&part: &Part| match part {
            Part::Kernels => compilers * KERNELS.len() as u64,
            Part::Programs => programs::cases(self),
            Part::Gaps => compilers * gaps::CASES,
            Part::Preempt => preempt::cases(),
        };
        u64::from(self.rounds) * self.parts.iter().map(of).sum::<u64>()
    }

    fn obstacle(&self, part: Part) -> Option<String> {
        match part {
            Part::Kernels | Part::Gaps => self.without_compiler(),
            Part::Programs => programs::obstacle(self),
            Part::Preempt => self.without_compiler().or_else(|| preempt::obstacle(self)),
        }
    }

    fn lacks(&self, part: Part) -> Option<String> {
        if part == Part::Programs {
            let left_out = self.programs.as_ref()?.left_out()?;
            return Some(format!("without {left_out}"));
        }
        // Preempt needs only one.
        if part == Part::Preempt || self.refused.is_empty() {
            return None;
        }
        let without = self.refused.iter().map(|(name, why)| format!("without {name}: {why}"));
        Some(without.collect::<Vec<_>>().join("; "))
    }

    fn measure(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        let mut found = match part {
            Part::Kernels => kernels::measure(self, stop, progress),
            Part::Programs => programs::measure(self, stop, progress),
            Part::Gaps => gaps::measure(self, stop, progress),
            Part::Preempt => preempt::measure(self, stop, progress),
        }?;
        found.tables = report::tables(part, &self.compilers, &found.rows);
        Ok(found)
    }

    fn conditions(&self) -> Vec<String> {
        let compilers: Vec<String> =
            self.compilers.iter().map(|of| format!("{} is {}", of.name, of.version)).collect();
        let mut said = vec![format!(
            "Kernels at -O2, all on CPU {} alone; {}. Variants and mechanisms in turn within a round, another first \
             each time; medians of {} rounds with least and greatest; slowdowns and losses are of two runs of one \
             round.",
            self.cpu,
            compilers.join(", "),
            self.rounds
        )];
        said.extend(self.parts.iter().map(|&part| self.condition(part)));
        if self.quick {
            said.push("--quick: each part once and shortly, not to quote.".into());
        }
        said
    }

    fn report(&self, outcome: &Outcome<Part>, results: &Results) -> Report {
        report::report(self.conditions(), outcome, results)
    }
}

impl ProbesOptions {
    fn condition(&self, part: Part) -> String {
        match part {
            Part::Kernels => format!(
                "kernels: the least CPU time of {} runs in a process, after one that warms up; none is clang alone; \
                 bounded+clock is heddle cc; naive placement is Concord's, at each function's entry and back edge, \
                 and its check is a flag. No runtime: a budget that runs out is granted anew.",
                self.runs
            ),
            Part::Programs => format!(
                "programs: the least CPU time of {} runs, user's and system's, of all threads; alone, without a \
                 runtime. The mean of a variant is that of the programs that are built in it. {}.",
                self.program_runs,
                self.programs
                    .as_ref()
                    .map_or_else(|| "No folder is given".into(), Programs::summary),
            ),
            Part::Gaps => format!(
                "gaps: {} runs of each kernel with bounded+clock; a recorder grants budgets as the runtime does; \
                 the ends of a run count as looks. Left out are gaps of more than 3 us in which the system ran \
                 another thread or an interrupt (above 100 us: another thread). clock is a loop that only looks \
                 at the clock: what the machine does on its own.",
                self.recorded_runs
            ),
            Part::Preempt => format!(
                "preempt: two threads with probes by {}, heddle run --policy round-robin:quantum=...; CPU time of \
                 the process for the same work; lost per preemption includes looks at the clock in between. \
                 Lateness: length of a turn less the quantum, by the program's own notes of the time each 100 ns, with \
                 the worker on a CPU of its own (HEDDLE_CPUS). \
                 net_p99 is without what was stolen: more than a microsecond between two notes in a turn, by an \
                 interrupt, another process or the host.",
                self.compilers.first().map_or("clang", |compiler| &compiler.name),
            ),
        }
    }
}
