//! Benches of several named parts that run one after the other, and their results.
//!
//! # Invariants
//!
//! - **I1** A part that cannot run reports why, one that fails reports how, and the others run.
//! - **I2** A stopped bench reports what was measured until then.

#![forbid(unsafe_code)]

mod part;
mod target;

pub(crate) use part::parts;
pub use part::{Part, parse};
pub use target::Target;

use heddle_metrics::{Progress, Report, Results, Row, Table};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// A bench of several parts, with its options.
pub trait Suite {
    /// Its parts.
    type Part: Part;

    /// Its name on the command line: `bench steer`.
    const NAME: &'static str;

    /// The requested parts; they run in the order of [`Part::ALL`].
    fn parts(&self) -> &[Self::Part];

    /// Number of steps that [`run`] shows.
    fn steps(&self) -> u64;

    /// Called before the first part.
    fn prepare(&self) {}

    /// Why a part cannot run here; `None` if it can, at least in part.
    fn obstacle(&self, _: Self::Part) -> Option<String> {
        None
    }

    /// What is left out of a part here, and why.
    fn lacks(&self, _: Self::Part) -> Option<String> {
        None
    }

    /// Runs one part.
    ///
    /// # Errors
    /// It failed, or was stopped ([`io::ErrorKind::Interrupted`]).
    fn measure(
        &self,
        part: Self::Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult>;

    /// Conditions that a reader must know before quoting.
    fn conditions(&self) -> Vec<String>;

    /// The bench as an HTML report.
    fn report(&self, outcome: &Outcome<Self::Part>, results: &Results) -> Report;
}

/// The result of one part.
#[derive(Clone, Debug, Default)]
pub struct PartResult {
    /// Its rows.
    pub rows: Vec<Row>,
    /// Its tables, in order.
    pub tables: Vec<Table>,
    /// Findings, as sentences.
    pub headlines: Vec<String>,
    /// The targets, and whether they were reached.
    pub targets: Vec<Target>,
    /// What failed, and how.
    pub failed: Vec<String>,
}

/// The results of a bench, and what is missing.
#[derive(Clone, Debug)]
pub struct Outcome<P> {
    /// All rows.
    pub rows: Vec<Row>,
    /// The tables, in order.
    pub tables: Vec<Table>,
    /// Findings, as sentences.
    pub headlines: Vec<String>,
    /// The targets, and whether they were reached.
    pub targets: Vec<Target>,
    /// Parts that could not run, or not completely, and why.
    pub skipped: Vec<(P, String)>,
    /// Parts that failed, and how.
    pub failed: Vec<(P, String)>,
}

impl<P> Default for Outcome<P> {
    fn default() -> Self {
        Outcome {
            rows: Vec::new(),
            tables: Vec::new(),
            headlines: Vec::new(),
            targets: Vec::new(),
            skipped: Vec::new(),
            failed: Vec::new(),
        }
    }
}

impl<P: Part> Outcome<P> {
    fn take(&mut self, part: P, found: PartResult) {
        self.rows.extend(found.rows);
        self.tables.extend(found.tables);
        self.headlines.extend(found.headlines);
        self.targets.extend(found.targets);
        self.failed.extend(found.failed.into_iter().map(|how| (part, how)));
    }

    /// Whether everything that ran is valid to quote.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.failed.is_empty() && self.rows.iter().all(|row| row.valid)
    }

    /// Findings, then targets.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.headlines.iter().cloned().chain(self.targets.iter().map(Target::line))
    }

    /// What is missing, and why.
    pub fn gaps(&self) -> impl Iterator<Item = String> + '_ {
        let skipped = self.skipped.iter().map(|(part, why)| format!("Skipped: {part}: {why}."));
        skipped.chain(self.failed.iter().map(|(part, how)| format!("Failed: {part}: {how}.")))
    }

    /// The parts of a report that all benches share; `figures` adds the bench's own after the section's head.
    #[must_use]
    pub fn report(
        &self,
        (title, section, introduction): (&str, &str, &str),
        figures: impl FnOnce(Report) -> Report,
        conditions: Vec<String>,
        results: &Results,
    ) -> Report {
        let report = Report::new(title).findings(self.lines());
        let report = figures(report.section(section, introduction));
        let report = self.tables.iter().cloned().fold(report, Report::table);
        let report = self.gaps().chain(conditions).fold(report, Report::notes);
        report.results(results.clone())
    }
}

/// Runs the parts; returns the results so far if `stop` is set.
pub fn run<S: Suite>(suite: &S, stop: &AtomicBool, progress: &mut Progress) -> Outcome<S::Part> {
    suite.prepare();
    let mut outcome = Outcome::default();
    for &part in S::Part::ALL.iter().filter(|part| suite.parts().contains(part)) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if let Some(why) = suite.obstacle(part) {
            progress.line(&format!("  {part}: skipped: {why}"));
            outcome.skipped.push((part, why));
            continue;
        }
        if let Some(why) = suite.lacks(part) {
            progress.line(&format!("  {part}: {why}"));
            outcome.skipped.push((part, why));
        }
        match suite.measure(part, stop, progress) {
            Ok(found) => outcome.take(part, found),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                progress.line(&format!("  {part}: {error}"));
                outcome.failed.push((part, error.to_string()));
            }
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_metrics::Run;

    parts! {
        /// A part of the bench.
        pub enum Letter {
            /// Works.
            A = "a",
            /// Cannot run.
            B = "b",
            /// Breaks.
            C = "c",
            /// Is not requested.
            D = "d",
        }
    }

    struct Letters;

    impl Suite for Letters {
        type Part = Letter;
        const NAME: &'static str = "bench letters";

        fn parts(&self) -> &[Letter] {
            &[Letter::C, Letter::B, Letter::A]
        }

        fn steps(&self) -> u64 {
            3
        }

        fn obstacle(&self, part: Letter) -> Option<String> {
            (part == Letter::B).then(|| "no ink".into())
        }

        fn measure(
            &self,
            part: Letter,
            _: &AtomicBool,
            _: &mut Progress,
        ) -> io::Result<PartResult> {
            if part == Letter::C {
                return Err(io::Error::other("torn"));
            }
            let row = Row::from_runs("s", part.name(), "m", "ns", &[Run::ok(1.0)]);
            let targets = vec![Target::at_most("m", &row, 2.0)];
            Ok(PartResult { rows: vec![row], targets, ..PartResult::default() })
        }

        fn conditions(&self) -> Vec<String> {
            vec!["quiet".into()]
        }

        fn report(&self, outcome: &Outcome<Letter>, results: &Results) -> Report {
            outcome.report(("Letters", "All", "Some."), |it| it, self.conditions(), results)
        }
    }

    fn silent() -> Progress {
        Progress::log(io::sink(), Letters::NAME, 3)
    }

    /// Invariant I1.
    #[test]
    fn a_part_that_cannot_run_or_breaks_leaves_the_others() {
        let outcome = run(&Letters, &AtomicBool::new(false), &mut silent());
        assert_eq!(outcome.rows.len(), 1);
        assert_eq!(outcome.skipped, [(Letter::B, "no ink".to_owned())]);
        assert_eq!(outcome.failed, [(Letter::C, "torn".to_owned())]);
        assert!(!outcome.valid(), "a part that failed");
        let html = Letters.report(&outcome, &Results::here(outcome.rows.clone())).to_html();
        for text in ["Skipped: b: no ink.", "Failed: c: torn.", "quiet", "target at most"] {
            assert!(html.contains(text), "{text}");
        }
    }

    /// Invariant I2.
    #[test]
    fn who_stops_gets_no_further_part() {
        let outcome = run(&Letters, &AtomicBool::new(true), &mut silent());
        assert!(outcome.rows.is_empty() && outcome.skipped.is_empty());
    }

    #[test]
    fn parts_are_read_as_they_are_written() {
        for part in Letter::ALL {
            assert_eq!(part.to_string().parse(), Ok(*part));
        }
        assert_eq!("e".parse::<Letter>().unwrap_err(), "no part `e`; there are a, b, c, d");
    }
}
