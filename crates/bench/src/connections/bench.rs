//! The bench: all parts on all systems.

use super::options::ConnectionsOptions;
use super::part::Part;
use super::{ladder, targets};
use crate::suite::{Outcome, PartResult, Suite};
use heddle_metrics::{Collector, Progress, Report, Results, Row};
use std::io;
use std::sync::atomic::AtomicBool;

impl Suite for ConnectionsOptions {
    type Part = Part;

    const NAME: &'static str = "bench connections";

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn steps(&self) -> u64 {
        (self.parts.len() * self.systems.len()) as u64 * u64::from(self.rounds)
    }

    fn prepare(&self) {
        // If it fails, the client shares a CPU with the server, for both systems alike.
        let _ = heddle_sys::thread::pin(&[self.cpus.load]);
    }

    fn measure(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        let mut collect = Collector::new();
        'all: for round in 0..self.rounds {
            for &system in &self.systems {
                progress.step(&format!("{part}, round {}: {system}", round + 1));
                match ladder::climb(self, part, system, stop) {
                    Ok(levels) => targets::add(&mut collect, part, system, &levels),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                    Err(error) => return Err(error),
                }
            }
        }
        let rows: Vec<Row> = collect.into_rows().into_iter().map(targets::directed).collect();
        let most = self.levels.last().copied().unwrap_or(0);
        Ok(PartResult {
            targets: targets::targets(part, most, &rows),
            tables: targets::tables(&rows),
            rows,
            ..PartResult::default()
        })
    }

    fn conditions(&self) -> Vec<String> {
        let mut said = vec![
            "Systems in turn within a round, each with a fresh server process of one worker; medians of rounds \
             with least and greatest; \
             rate_kept is of two levels of one run."
                .into(),
            "Closed loop over loopback with 64 requests of 8 bytes in flight, from one thread; every read of \
             the server has a time limit.".into(),
            self.cpus.in_words(),
        ];
        if self.quick {
            said.push("--quick: few connections, once and shortly, not to quote.".into());
        }
        said
    }

    fn report(&self, outcome: &Outcome<Part>, results: &Results) -> Report {
        let head = (
            "Connections",
            "A server with more and more live connections",
            "Targets above; tables below.",
        );
        outcome.report(head, |report| report, self.conditions(), results)
    }
}
