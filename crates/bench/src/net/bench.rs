//! The bench: all parts.

use super::child::Load;
use super::compare::{Contest, compare};
use super::contests;
use super::options::NetOptions;
use super::part::Part;
use super::testbed::Testbed;
use super::{report, targets};
use crate::suite::{Outcome, PartResult, Suite};
use heddle_metrics::{Progress, Report, Results, Row};
use std::io;
use std::sync::atomic::AtomicBool;

impl Suite for NetOptions {
    type Part = Part;

    const NAME: &'static str = "bench net";

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn steps(&self) -> u64 {
        self.parts.iter().map(|&part| self.steps_of(part)).sum()
    }

    fn prepare(&self) {
        // If it fails, this process disturbs both ends a little, all systems alike.
        let _ = heddle_sys::thread::pin(&[self.cpus.load]);
    }

    fn obstacle(&self, part: Part) -> Option<String> {
        match part {
            Part::Stack => None,
            Part::Loss => heddle_netns::missing_privilege().or(Some(NO_FAULTS.into())),
            _ => heddle_netns::missing_privilege(),
        }
    }

    fn measure(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        let rows = match part {
            Part::Udp | Part::Tcp | Part::Stream => self.contests(part, stop, progress)?,
            _ => Vec::new(),
        };
        let tables = report::tables(&rows);
        Ok(PartResult { targets: targets::ratios(&rows), tables, rows, ..PartResult::default() })
    }

    fn conditions(&self) -> Vec<String> {
        report::conditions(self)
    }

    fn report(&self, outcome: &Outcome<Part>, results: &Results) -> Report {
        report::report(self.conditions(), outcome, results)
    }
}

/// Why packets are not lost.
const NO_FAULTS: &str = "not available: heddle-netns cannot lose packets yet";

impl NetOptions {
    fn contests_of(&self, part: Part) -> Vec<Contest> {
        match part {
            Part::Udp => contests::udp(),
            Part::Tcp => self.connections.iter().map(|&count| contests::tcp(count)).collect(),
            Part::Stream => {
                [Load::Send, Load::Receive].map(|load| contests::stream(load, "")).into()
            }
            _ => Vec::new(),
        }
    }

    fn steps_of(&self, part: Part) -> u64 {
        let settings =
            self.contests_of(part).iter().map(|contest| contest.settings.len() as u64).sum::<u64>();
        settings.max(1) * u64::from(self.rounds)
    }

    fn contests(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<Vec<Row>> {
        let testbed = Testbed::new(self, stop)?;
        let mut rows = Vec::new();
        for contest in self.contests_of(part) {
            rows.extend(compare(&testbed, &contest, progress)?);
        }
        Ok(rows)
    }
}
