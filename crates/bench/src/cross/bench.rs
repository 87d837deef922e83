//! The bench: all systems in interleaved rounds.

use super::point::{self, Sample};
use super::{CrossOptions, Part, System, rows};
use crate::suite::{Outcome, PartResult, Suite};
use heddle_agent::guardian::Kind;
use heddle_metrics::{LinePlot, Progress, Report, Results};
use heddle_sys::thread;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

impl Suite for CrossOptions {
    type Part = Part;

    const NAME: &'static str = "bench cross";

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn steps(&self) -> u64 {
        self.systems.len() as u64 * u64::from(self.rounds)
    }

    fn lacks(&self, _: Part) -> Option<String> {
        let without = |system: &System| self.obstacle(*system);
        let why = self.systems.iter().find_map(without)?;
        let all = self.systems.iter().filter(|system| self.obstacle(**system).is_none());
        let names: Vec<_> = all.map(|system| system.name()).collect();
        Some(format!("only {}: {why}", names.join(", ")))
    }

    fn measure(
        &self,
        _: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        let allowed = thread::affinity()?;
        thread::pin(&[self.load_cpu])?;
        let (samples, failed) = self.run(stop, progress);
        // They were allowed before.
        let _ = thread::pin(&allowed);
        let rows = rows::rows(&samples);
        Ok(PartResult {
            tables: rows::tables(self, &rows),
            targets: rows::targets(&rows),
            rows,
            failed,
            ..PartResult::default()
        })
    }

    fn conditions(&self) -> Vec<String> {
        let mut said = vec![
            format!(
                "{} rounds, systems in turn with the same arrivals; medians with least and greatest. A ratio \
                 compares runs of one round.",
                self.rounds
            ),
            format!(
                "Open loop, Poisson, from intended times. {} threads on CPU {} compute for these times of their \
                 own; load and agent run on CPU {}.",
                self.executors, self.server_cpu, self.load_cpu
            ),
            format!("The agent's policy: {}.", self.policy),
            "The column others is what other processes took of the server's CPU. SCANs are slower by it, above all \
             under an agent over rt, to which they are ordinary threads; do not quote them then."
                .into(),
        ];
        if self.backend == Ok(Kind::Rt) {
            said.push("The rt backend: threads with GETs are above ordinary ones.".into());
        }
        if self.load_cpu == self.server_cpu {
            said.push(
                "One CPU: load, agent and server share it, so nothing is to be quoted.".into(),
            );
        }
        if self.quick {
            said.push("--quick: once and briefly, not to quote.".into());
        }
        said
    }

    fn report(&self, outcome: &Outcome<Part>, results: &Results) -> Report {
        let head = (
            "Sockets and threads together",
            "Half GETs, half SCANs, six threads on one CPU",
            "Steering alone, threads alone, both.",
        );
        let figures = |report: Report| {
            let plot = LinePlot::over_load(results, "get", "p99", "GET p99");
            let has_points = plot.series.iter().any(|series| !series.points.is_empty());
            if has_points { report.plot(plot) } else { report }
        };
        outcome.report(head, figures, self.conditions(), results)
    }
}

impl CrossOptions {
    fn run(&self, stop: &AtomicBool, progress: &mut Progress) -> (Vec<Sample>, Vec<String>) {
        let (mut samples, mut failed) = (Vec::new(), Vec::<(System, String)>::new());
        let can = |system: &&System| self.obstacle(**system).is_none();
        for round in 0..self.rounds {
            for &system in self.systems.iter().filter(can) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // Reported once; its other rounds would fail, too.
                if failed.iter().any(|(known, _)| *known == system) {
                    continue;
                }
                progress.step(&format!("round {}: {system}", round + 1));
                match point::measure(self, system, round, stop) {
                    Ok(of) => {
                        of.iter().for_each(|sample| progress.line(&sample.line()));
                        samples.extend(of);
                    }
                    Err(error) => {
                        progress.line(&format!("  {system}: {error}"));
                        failed.push((system, error.to_string()));
                    }
                }
            }
        }
        let in_words = |(system, how): (System, String)| format!("{system}: {how}");
        (samples, failed.into_iter().map(in_words).collect())
    }
}
