//! All parts, in the order of their tables.

use super::batch;
use super::critical::{CONNECTIONS, GET};
use super::options::{BATCH_POLICY, CRITICAL_POLICY, ShareOptions};
use super::part::Part;
use super::{colocated, report, rocksdb, switch, targets, wake};
use crate::posix::rounds::MOST_OTHERS;
use crate::suite::{Outcome, PartResult, Suite};
use heddle_load::Op;
use heddle_metrics::{Progress, Report, Results};
use std::io;
use std::sync::atomic::AtomicBool;

impl Suite for ShareOptions {
    type Part = Part;

    const NAME: &'static str = "bench share";

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn steps(&self) -> u64 {
        let of = |&part: &Part| {
            let systems = self.turns(part, 0).len() as u64;
            let rounds = u64::from(self.rounds);
            match part {
                Part::Switch => u64::from(self.switch_rounds) * systems,
                Part::Service | Part::Memcached | Part::RocksDb => {
                    1 + rounds * systems * self.loads(part).len() as u64
                }
                Part::Wake => rounds * systems,
            }
        };
        self.parts.iter().map(of).sum()
    }

    fn obstacle(&self, part: Part) -> Option<String> {
        let none = || match self.refusals(part) {
            [(system, why), ..] => format!("{system}: {why}"),
            [] => "none of the systems is measured in it".into(),
        };
        let obstacle = self.obstacle_of(part);
        obstacle.or_else(|| self.turns(part, 0).is_empty().then(none))
    }

    fn lacks(&self, part: Part) -> Option<String> {
        let lack = |(system, why): &(_, String)| format!("without {system}: {why}");
        let lacks: Vec<String> = self.refusals(part).iter().map(lack).collect();
        (!lacks.is_empty()).then(|| lacks.join("; "))
    }

    fn measure(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        let (rows, targets) = match part {
            Part::Switch => {
                let rows = switch::run(self, stop, progress)?;
                let targets = targets::switches(&rows);
                (rows, targets)
            }
            Part::Service | Part::Memcached | Part::RocksDb => {
                let found = colocated::run(self, part, stop, progress)?;
                let targets = targets::colocated(part, found.capacity, &found.rows);
                (found.rows, targets)
            }
            Part::Wake => {
                let rows = wake::run(self, stop, progress)?;
                let targets = targets::wake_ups(&rows);
                (rows, targets)
            }
        };
        let tables = report::tables(part, &rows);
        Ok(PartResult { rows, tables, targets, ..PartResult::default() })
    }

    fn conditions(&self) -> Vec<String> {
        let mut said = vec![format!(
            "Both applications on CPU {}, the load generator on CPU {}; fresh processes for each run, systems in turn \
             within a round, another first each time; medians of rounds with least and greatest; ratios are of two \
             runs of one round. A run in which others used more than {:.0} % of a CPU is invalid and done again, {} \
             times at most.",
            self.cpu(),
            self.cpus.load,
            MOST_OTHERS * 100.0,
            self.tries - 1
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

impl ShareOptions {
    fn condition(&self, part: Part) -> String {
        let beside = format!(
            "beside {} threads that compute (programs/batch.c); both under heddle run in the share, {CRITICAL_POLICY} \
             and {BATCH_POLICY}, where threads other than workers may use the other CPU, or plain; alone: under \
             heddle run, without a batch program",
            batch::THREADS
        );
        match part {
            Part::Switch => format!(
                "switch: two processes give one CPU to each other; wall time of {} switches or more, one way, in \
                 pieces of 10 ms; share-futex: a third, idle member makes them sleep on futexes; share-ordinary: \
                 without real time; sched_yield: SCHED_FIFO.",
                self.switches
            ),
            Part::Service => format!(
                "service: GETs that compute for {GET} on {CONNECTIONS} connections, open loop, Poisson, latency from \
                 the intended send time, at shares of what the server does alone, {} each; {beside}. be_share: steps \
                 of the batch program, of what it does alone as a plain program; of_left: that over what the \
                 server's CPU time left.",
                self.duration
            ),
            Part::Memcached => format!(
                "memcached: Debian's with one thread, as service, {} each; {beside}.",
                self.duration
            ),
            Part::RocksDb => format!(
                "rocksdb: heddle kv serve on RocksDB over UDP, {:.1} % SCANs of {} or slightly more, latency of GETs, \
                 as service, {} each; beside the same batch program; alone and in the share on Heddle's threads under \
                 {CRITICAL_POLICY}, else on {} threads of the kernel.",
                rocksdb::mix().share(Op::Scan) * 100.0,
                rocksdb::SCAN,
                self.duration,
                rocksdb::THREADS,
            ),
            Part::Wake => format!(
                "wake: a task that sleeps for 1 ms and computes for 20 us, {}; how late it runs, and how long its \
                 worker waits for the CPU (wait_p50, wait_p99: the next power of two); {beside}.",
                self.duration
            ),
        }
    }
}
