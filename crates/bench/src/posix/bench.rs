//! All parts, in the order of their tables.

use std::io;
use std::sync::atomic::AtomicBool;

use super::options::PosixOptions;
use super::part::Part;
use super::rounds::MOST_OTHERS;
use super::system::System;
use super::{
    client, compute, first, mariadb, memcached, micro, report, schbench, server, testbed, tokio,
};
use crate::suite::{Outcome, PartResult, Suite};
use heddle_metrics::{Progress, Report, Results};

impl Suite for PosixOptions {
    type Part = Part;

    const NAME: &'static str = "bench posix";

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn steps(&self) -> u64 {
        let rounds = u64::from(self.rounds);
        let of_server = |part: Part| 1 + rounds * self.compared(part).len() as u64;
        let of = |&part: &Part| match part {
            Part::Micro => rounds * micro::CASES,
            Part::Schbench => rounds * schbench::CASES,
            Part::Compute | Part::First => rounds,
            Part::Server | Part::Mariadb => of_server(part),
            Part::Memcached => memcached::CASES * of_server(part),
            Part::Tokio => tokio::CASES * of_server(part),
        };
        self.parts.iter().map(of).sum()
    }

    fn obstacle(&self, part: Part) -> Option<String> {
        if let Err(why) = self.program_of(part) {
            return Some(why);
        }
        let none = || match self.refusals(part) {
            [(_, why), ..] => why.clone(),
            [] => "none of the systems differs from the kernel's in this part".into(),
        };
        self.compared(part).is_empty().then(none)
    }

    fn lacks(&self, part: Part) -> Option<String> {
        if let [(system, why), ..] = self.refusals(part) {
            return Some(format!("without {system}: {why}"));
        }
        let alone = !self.compared(part).contains(&System::Kernel);
        alone.then(|| format!("without kernel among the systems {part} has no comparison"))
    }

    fn measure(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        let mut found = match part {
            Part::Micro => micro::run(self, stop, progress),
            Part::Schbench => schbench::run(self, stop, progress),
            Part::Compute => compute::run(self, stop, progress),
            Part::First => first::run(self, stop, progress),
            Part::Server => server::run(self, stop, progress),
            Part::Mariadb => mariadb::run(self, stop, progress),
            Part::Memcached => memcached::run(self, stop, progress),
            Part::Tokio => tokio::run(self, stop, progress),
        }?;
        found.tables = report::tables(part, &found.rows);
        Ok(found)
    }

    fn conditions(&self) -> Vec<String> {
        let mut said = vec![
            "The same binaries (Debian's, or cc -O2 -pthread) on all systems: kernel (as they are), kernel-nice \
             (threads that compute for long at nice 19; first, server and mariadb), heddle/POLICY (heddle run \
             --policy POLICY). Systems in turn within a round, another first each time; medians of rounds with least \
             and greatest; gains, shares and differences are of two runs of one round."
                .into(),
        ];
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

impl PosixOptions {
    fn condition(&self, part: Part) -> String {
        let count = self.cpus.len();
        let busy = format!(
            "a run in which others used more than {:.0} % of a CPU is invalid and done again, {} times at most",
            MOST_OTHERS * 100.0,
            self.tries - 1
        );
        match part {
            Part::Micro => format!(
                "micro: all systems on CPU {} alone, so one worker; CPU time of the whole process (child: and of its \
                 children), some {} each.",
                self.cpus.last().copied().unwrap_or(0),
                self.budget
            ),
            Part::Schbench => format!(
                "schbench: the pattern of schbench, written anew; one message thread, workers on {count} CPUs: 1x is \
                 {count}; a request is 100 us of sleep and then multiplications of matrices ({}); no lock per CPU; {}; \
                 {busy}.",
                self.operations, self.duration
            ),
            Part::Compute => format!(
                "compute: {} threads on {count} CPUs, jobs of some 20 us from a queue under a mutex; {}; {busy}.",
                count * 4,
                self.duration
            ),
            Part::First => format!(
                "first: the program's first thread computes on CPU {} beside a thread that wakes up each millisecond \
                 and computes for some 20 us; {}; {busy}.",
                self.cpus.last().copied().unwrap_or(0),
                self.duration
            ),
            Part::Server => format!(
                "server: {}, a SCAN computes for {}, a GET for 10us; {} connections for each, on loopback; open loop, \
                 Poisson, latency from the intended send time, at {:.0} % of what the kernel's server can do in a \
                 closed loop; {}; {}; {busy}.",
                testbed::MIX,
                self.scan,
                client::CONNECTIONS,
                self.load * 100.0,
                self.duration,
                testbed::cpus(self).map_or_else(|error| error.to_string(), |cpus| cpus.in_words())
            ),
            Part::Mariadb => format!("{}; {busy}.", mariadb::condition(self)),
            Part::Memcached => format!("{}; {busy}.", memcached::condition(self)),
            Part::Tokio => format!("tokio: as server, on tokio with 2 and with 8 workers; {busy}."),
        }
    }
}
