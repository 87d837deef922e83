//! All parts, in the order of their tables.

use super::options::AsyncOptions;
use super::part::Part;
use super::workload::Workload;
use super::{micro, report, service, targets};
use crate::posix::rounds::MOST_OTHERS;
use crate::suite::{Outcome, PartResult, Suite};
use heddle_metrics::{Progress, Report, Results};
use heddle_sys::thread::{SavedAffinity, pin};
use std::io;
use std::sync::atomic::AtomicBool;

impl Suite for AsyncOptions {
    type Part = Part;

    const NAME: &'static str = "bench async";

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn steps(&self) -> u64 {
        self.parts.iter().map(|&part| self.steps_of(part)).sum()
    }

    fn obstacle(&self, part: Part) -> Option<String> {
        let none = self.turns(part, 0).is_empty();
        none.then(|| "none of the systems is measured in it".into())
    }

    fn measure(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        let _affinity = SavedAffinity::save()?;
        // If it fails, this process disturbs the runtimes a little, all alike.
        let _ = pin(&[self.cpus.load]);
        let (rows, targets) = match Workload::of(part) {
            Some(workload) => {
                let rows = service::run(self, part, workload, stop, progress)?;
                let targets = match part {
                    Part::Saturation => targets::saturation(&rows),
                    _ => targets::tails(part, &workload, &rows),
                };
                (rows, targets)
            }
            None if part == Part::Micro => {
                let rows = micro::operations(self, stop, progress)?;
                let targets = targets::operations(&rows);
                (rows, targets)
            }
            None => {
                let rows = micro::memory(self, stop, progress)?;
                let targets = targets::memory(self, &rows);
                (rows, targets)
            }
        };
        let tables = report::tables(part, &rows);
        Ok(PartResult { rows, tables, targets, ..PartResult::default() })
    }

    fn conditions(&self) -> Vec<String> {
        let cpu = self.server();
        let mut said = vec![
            format!(
                "Every run is a fresh process whose runtime has CPU {cpu} alone and one worker (tokio-8: eight), \
                 systems in turn within a round, another first each time; medians of rounds with least and greatest; \
                 ratios are of two runs of one round."
            ),
            "micro: CPU time of the whole process; spawn_batch: 10,000 tasks, then all of them are awaited; wake: two \
             tokio::sync::Notify, one way; tokio's yield_now waits for a poll of its driver. memory: resident memory, \
             futures with 64 bytes of state included; spawn_time and drop_time are CPU time of all tasks; threads: \
             10,000 at most."
                .into(),
        ];
        if self.parts.iter().any(|&part| Workload::of(part).is_some()) {
            said.push(format!(
                "Requests: one future each, spawned by a thread on CPU {}; open loop, Poisson; response times from the \
                 scheduled arrival; load in per cent of what one worker could compute; {} each. Quantum of two-queue: \
                 100 us, beside requests of 10 ms 1 ms. A run is invalid if more than 0.5 % of the requests were \
                 spawned 200 us late, if any got no answer, or if others used more than {:.0} % of a CPU; a disturbed \
                 one is done again, {} times at most.",
                self.cpus.load,
                self.duration,
                MOST_OTHERS * 100.0,
                self.tries - 1
            ));
        }
        if self.cpus.shared {
            said.push(
                "Generator and runtime share one CPU: response times include their switching."
                    .into(),
            );
        }
        if self.quick {
            said.push("--quick: each part once and shortly, not to quote.".into());
        }
        said
    }

    fn report(&self, outcome: &Outcome<Part>, results: &Results) -> Report {
        report::report(self, self.conditions(), outcome, results)
    }
}
