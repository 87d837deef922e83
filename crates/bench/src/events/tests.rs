//! Systems on real descriptors, and a report of invented rows.

use super::client::connect;
use super::connection::{Served, Word, Words};
use super::demux::{Remainder, Watched};
use super::service::Service;
use super::worker_threads::WorkerThreads;
use super::*;
use crate::suite::{self, Outcome, Part as _, Suite as _};
use heddle_core::Ns;
use heddle_metrics::{Progress, Results, Row, Run};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A guard against hanging, not a measure.
const LONG: Duration = Duration::from_secs(60);

fn systems() -> Vec<System> {
    let tuned = System::Queue("hybrid:affinity=queue,retry=100us".into());
    System::all().into_iter().chain([tuned]).collect()
}

/// How often each id was answered, with three requests at once on each connection.
fn answers(system: &System, threads: usize, wire: Wire) -> io::Result<BTreeMap<u64, u32>> {
    const CONNECTIONS: usize = 16;
    const EACH: usize = 3;
    const TURNS: usize = 5;
    let (ends, connections) = connect(wire, CONNECTIONS)?;
    let watched: Vec<_> = connections.iter().map(|c| Watched { fd: c.fd(), high: false }).collect();
    let handle = |did: &mut Served, number: usize| connections[number].handle(Service::Cpu, did);
    let clients = || {
        let mut seen = BTreeMap::new();
        let mut words: Vec<Words> = ends.iter().map(|_| Words::default()).collect();
        let begin = Instant::now();
        for turn in 0..TURNS {
            for n in 0..CONNECTIONS * EACH {
                let word = Word { id: (turn * CONNECTIONS * EACH + n) as u64, time: Ns(1_000) };
                rustix::io::write(&ends[n % CONNECTIONS], &word.encode())?;
            }
            while seen.len() < (turn + 1) * CONNECTIONS * EACH {
                assert!(begin.elapsed() < LONG, "{system}: answers are missing: {seen:?}");
                gather(&ends, &mut words, &mut seen);
            }
        }
        // Leaves time for duplicates.
        std::thread::sleep(Duration::from_millis(20));
        gather(&ends, &mut words, &mut seen);
        Ok(seen)
    };
    let (seen, did) = WorkerThreads { system, threads }.run(&watched, &handle, clients)?;
    let handled: u64 = did.iter().map(|did: &Served| did.requests).sum();
    assert_eq!(handled, (CONNECTIONS * EACH * TURNS) as u64, "{system}");
    Ok(seen)
}

fn gather(ends: &[std::os::fd::OwnedFd], words: &mut [Words], seen: &mut BTreeMap<u64, u32>) {
    let mut came = Vec::new();
    for (end, words) in ends.iter().zip(words) {
        while words.read(end.as_fd(), &mut came) == Remainder::Perhaps {}
    }
    came.into_iter().for_each(|word| *seen.entry(word.id).or_default() += 1);
}

/// Invariant I3.
#[test]
fn every_system_answers_each_request_exactly_once() {
    for system in systems() {
        for wire in [Wire::Unix, Wire::Tcp] {
            let seen = answers(&system, 3, wire).unwrap_or_else(|e| panic!("{system}: {e}"));
            assert!(seen.values().all(|&times| times == 1), "{system}, {wire:?}: {seen:?}");
        }
    }
}

#[test]
fn a_system_that_cannot_be_made_says_so_and_nothing_hangs() {
    let wrong = System::Queue("nothing".into());
    let error = answers(&wrong, 2, Wire::Unix).unwrap_err();
    assert!(error.to_string().contains("nothing"), "{error}");
}

#[test]
fn an_error_of_the_driver_ends_the_threads() {
    let (_ends, connections) = connect(Wire::Unix, 1).unwrap();
    let watched = [Watched { fd: connections[0].fd(), high: true }];
    let handle = |did: &mut Served, number: usize| connections[number].handle(Service::Cpu, did);
    let broken = || -> io::Result<()> { Err(io::Error::other("broken")) };
    for system in systems() {
        let done = WorkerThreads { system: &system, threads: 2 }.run(&watched, &handle, broken);
        assert_eq!(done.unwrap_err().to_string(), "broken");
    }
}

fn row(system: &str, case: &str, metric: &str, unit: &str, value: f64) -> Row {
    Row::from_runs(system, case, metric, unit, &[Run::ok(value)])
}

#[test]
fn targets_are_held_against_the_rows_of_their_load() {
    let options = EventsOptions::new(&System::all(), false);
    let rate = |share: f64| options.gis.workload.capacity() * share;
    let rows = [
        row("hybrid", "gis", "light_p99_gain", "x", 9.0).with_load(rate(0.4)),
        row("hybrid", "gis", "light_p99_gain", "x", 14.0).with_load(rate(0.6)),
        row("hybrid", "gis", "light_p99_over_shared", "x", 1.4).with_load(rate(0.6)),
        row("hybrid", "gis", "imbalance_percent", "%", 6.0).with_load(rate(0.6)),
    ];
    let lines: Vec<String> =
        targets::tails(&options.gis, &rows).iter().map(|target| target.line()).collect();
    let verdicts: Vec<bool> = lines.iter().map(|line| line.ends_with("reached")).collect();
    assert_eq!(verdicts, [true, false, true, false], "{lines:#?}");
    assert!(lines[0].contains("gis at 40 %") && lines[1].contains("at least 15"));
}

#[test]
fn the_report_has_measured_and_predicted_rows() {
    let mut options = EventsOptions::new(&System::all(), true);
    options.predicted = predicted(Results::here(vec![
        row("hybrid", "zippydb", "light_p99_ns", "ns", 2e5).with_load(14_700.0),
    ]));
    let rate = options.zippydb.workload.capacity() * 0.35;
    let mut rows = vec![
        row("epoll-per-thread", "overhead", "cycles_per_event", "cycles", 1_400.0),
        row("hybrid", "overhead", "cycles_per_event", "cycles", 1_550.0),
        row("hybrid", "pipes-2", "throughput", "1/s", 340e3),
        row("hybrid high", "priority", "probe_p99_ns", "ns", 5e5),
        row("hybrid", "zippydb", "light_p99_ns", "ns", 1.8e5).with_load(rate),
    ];
    rows.extend(super::predicted::about(Part::ZippyDb, &rows, &options.predicted));
    let parts = [Part::Overhead, Part::ZippyDb].into_iter();
    let tables = parts.flat_map(|part| targets::tables(part, &rows)).collect();
    let outcome = Outcome::<Part> { tables, rows: rows.clone(), ..Outcome::default() };
    let html = options.report(&outcome, &Results::here(rows)).to_html();
    let expected = [
        "sim:hybrid",
        "p99 of light requests",
        "What an event costs",
        "predictions, not measured",
        "not to quote",
    ];
    for text in expected {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn what_is_set_reaches_every_part() {
    let mut options = EventsOptions::new(&System::all(), false);
    options.set_rounds(7);
    options.set_loads(&[0.5]);
    options.set_wire(Wire::Tcp);
    options.set_scale(1.0);
    options.set_dilation(crate::steer::Dilation(10));
    options.pipes.threads = vec![1, 2];
    assert_eq!(options.zippydb.workload.light(), Ns(16_300));
    assert_eq!(options.gis.workload.light(), Ns::from_us(100));
    assert_eq!(options.zippydb.workload.wire, Wire::Tcp);
    let systems = System::all().len() as u64;
    let queues = System::all().iter().filter(|system| system.is_queue()).count() as u64;
    let memcached = 1 + if options.memcached.shared.is_some() { queues } else { 0 };
    assert_eq!(
        options.steps(),
        // overhead; pipes, zippydb, gis, dilated, uniform, priority, idle; web, memcached.
        1 + 7 * (6 * systems + 3 * 2 + queues) + 1 + 7 * systems + 1 + 7 * memcached
    );
}

/// The parts in which light requests wait behind long ones.
const MIXES: [&str; 3] = ["zippydb", "gis", "dilated"];

/// Every part once and shortly, as a user runs it. Figures of such short runs mean nothing, so none is
/// checked: a part can be invalid, but must not fail.
#[test]
fn every_part_has_rows_of_every_system() {
    let systems = [System::PerThread, System::Shared, System::Queue("hybrid".into())];
    let mut options = EventsOptions::new(&systems, true);
    options.set_duration(Ns::from_ms(60));
    options.set_loads(&[0.2]);
    options.pipes.threads = vec![1, 3];
    let mut progress = Progress::log(io::sink(), EventsOptions::NAME, 1);
    let outcome = suite::run(&options, &AtomicBool::new(false), &mut progress);
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    // Without the program on the queue, and perhaps without the distribution's.
    assert!(
        outcome.skipped.iter().all(|(part, _)| *part == Part::Memcached),
        "{:?}",
        outcome.skipped
    );
    let has = |system: &str, case: &str, metric: &str| {
        let same = |row: &&Row| row.system == system && row.case == case && row.metric == metric;
        let row = outcome.rows.iter().find(same);
        let row = row.unwrap_or_else(|| panic!("no {system} {case} {metric}"));
        assert!(row.value.is_finite() && row.value > 0.0, "{row:?}");
    };
    for system in systems.iter().map(ToString::to_string) {
        has(&system, "overhead", "cycles_per_event");
        has(&system, "uniform", "throughput");
        ["pipes-1", "pipes-3"].iter().for_each(|case| has(&system, case, "throughput_ratio"));
        MIXES.iter().for_each(|case| has(&system, case, "light_p99_ns"));
        has(&system, "web", "p99_ns");
    }
    has("hybrid", "web", "p99_gain");
    if options.obstacle(Part::Memcached).is_none() {
        has("epoll-per-thread", "memcached", "p99_ns");
    }
    MIXES.iter().for_each(|case| has("hybrid", case, "light_p99_gain"));
    for system in ["hybrid high", "hybrid", "epoll-per-thread"] {
        has(system, "priority", "probe_over_idle");
    }
    has("hybrid", "idle-50", "idle_cpus");
    assert!(outcome.tables.len() >= Part::ALL.len() - outcome.skipped.len());
}
