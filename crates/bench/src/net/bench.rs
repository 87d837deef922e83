//! The bench: all parts.

use super::child::Load;
use super::compare::{Contest, compare};
use super::contests;
use super::options::NetOptions;
use super::part::Part;
use super::testbed::Testbed;
use super::{report, tail, targets, without_net};
use crate::suite::{Outcome, PartResult, Suite};
use heddle_metrics::{Progress, Report, Results, Row};
use heddle_sys::thread::{SavedAffinity, pin};
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

    fn obstacle(&self, part: Part) -> Option<String> {
        match part {
            Part::Stack => None,
            _ => heddle_netns::missing_privilege(),
        }
    }

    fn measure(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        // The machine is described later, with all CPUs.
        let _affinity = SavedAffinity::save()?;
        // If it fails, this process disturbs both ends a little, all systems alike.
        let _ = pin(&[self.cpus.load]);
        let rows = match part {
            Part::Stack => without_net::stack(self, stop, progress)?,
            Part::Tail => tail::run(self, stop, progress)?,
            Part::Idle => without_net::idle(&Testbed::new(self, stop)?, progress)?,
            Part::Udp | Part::Tcp | Part::Stream | Part::Loss => {
                self.contests(part, stop, progress)?
            }
        };
        let tables = report::tables(&rows);
        Ok(PartResult { targets: targets::of(&rows), tables, rows, ..PartResult::default() })
    }

    fn conditions(&self) -> Vec<String> {
        report::conditions(self)
    }

    fn report(&self, outcome: &Outcome<Part>, results: &Results) -> Report {
        report::report(self.conditions(), outcome, results)
    }
}

/// The name of streams on the network with the default offloads.
const OFFLOADS: &str = "offloads-";

const STREAMS: [Load; 2] = [Load::Send, Load::Receive];

impl NetOptions {
    fn contests_of(&self, part: Part) -> Vec<Contest> {
        match part {
            Part::Udp => contests::udp(),
            Part::Tcp => self.connections.iter().map(|&count| contests::tcp(count)).collect(),
            Part::Stream => STREAMS.map(|load| contests::stream("", load)).into(),
            Part::Loss => contests::loss(),
            Part::Stack | Part::Tail | Part::Idle => Vec::new(),
        }
    }

    fn steps_of(&self, part: Part) -> u64 {
        let settings: usize =
            self.contests_of(part).iter().map(|contest| contest.settings.len()).sum();
        let runs = match part {
            Part::Stack => 1,
            Part::Idle => 2,
            Part::Tail => return tail::steps(self.rounds),
            // On both networks.
            Part::Stream => 2 * settings,
            Part::Udp | Part::Tcp | Part::Loss => settings,
        };
        runs as u64 * u64::from(self.rounds)
    }

    fn contests(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<Vec<Row>> {
        let (mut rows, testbed) = (Vec::new(), Testbed::new(self, stop)?);
        for contest in self.contests_of(part) {
            rows.extend(compare(&testbed, &contest, progress)?);
        }
        if part == Part::Stream {
            let testbed = Testbed::with_offloads(self, stop)?;
            for contest in STREAMS.map(|load| contests::stream(OFFLOADS, load)) {
                rows.extend(compare(&testbed, &contest, progress)?);
            }
        }
        Ok(rows)
    }
}
