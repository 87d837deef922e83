//! The runtime's page: what other processes read there is what the runtime counts, and its schedule.
#![cfg(not(virtual_time))]
#![allow(missing_docs)]

mod common;

use common::{alone, assert_success, runtime};
use heddle_rt::trace::{Event, EventKind};
use heddle_rt::{RuntimeBuilder, Stats, blocking, spawn, yield_now};
use heddle_telemetry::{Reader, find};
use std::collections::HashMap;
use std::fs::File;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// The page of the runtime with this name, in this process.
fn page(name: &str) -> Option<Reader> {
    let label = format!(",runtime={name}");
    find(std::process::id()).unwrap().into_iter().find(|page| page.labels().ends_with(&label))
}

fn named(name: &str) -> RuntimeBuilder {
    RuntimeBuilder::new().name(name).policy("fifo").workers(1)
}

fn sums(page: &Reader) -> HashMap<String, u64> {
    let mut sums = HashMap::new();
    for counter in page.counters() {
        *sums.entry(counter.name).or_default() += counter.value;
    }
    sums
}

fn expected(stats: &Stats) -> HashMap<String, u64> {
    let all = [
        ("switches_total", stats.switches),
        ("preemptions_total", stats.preemptions),
        ("steals_total", stats.steals),
        ("spawned_total", stats.spawned),
        ("exited_total", stats.exited),
        ("sleeps_total", stats.sleeps),
        ("interrupts_total", stats.interrupts),
        ("probes_total", stats.probes),
        ("preemptions_skipped_total", stats.preemptions_skipped),
        ("takeovers_total", stats.takeovers),
        ("polls_kept_total", stats.polls_kept),
        ("reminders_total", stats.reminders),
        ("workers", stats.kernel_threads as u64),
    ];
    all.into_iter().map(|(name, count)| (format!("heddle_runtime_{name}"), count)).collect()
}

#[test]
fn other_processes_read_what_the_runtime_counts() {
    let runtime = named("counts").build().unwrap();
    let page = page("counts").expect("a page");
    assert_eq!(page.labels(), "layer=runtime,policy=fifo,runtime=counts");
    runtime.run(|| {
        let tasks: Vec<_> = (0..10).map(|_| spawn(yield_now)).collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
    });
    // Workers go to sleep, which is counted, too.
    let same = || (0..1000).any(|_| sums(&page) == expected(&runtime.stats()));
    heddle_test_support::until("the counts agree", same);
    assert!(runtime.stats().spawned >= 11 && runtime.stats().unseen.is_none());
    // The reader has a descriptor of it, too.
    drop((runtime, page));
    heddle_test_support::until("the page goes with the runtime", || self::page("counts").is_none());
}

/// Asserts that a task runs only after it was queued, and leaves the CPU only after it ran.
fn assert_is_a_schedule(events: &[Event]) {
    let mut running = HashMap::new();
    for event in events {
        let runs = running.get(&event.who).copied();
        match event.kind {
            EventKind::New => assert_ne!(runs, Some(true), "{event:?}"),
            EventKind::Start | EventKind::Wakeup => assert_eq!(runs, Some(false), "{event:?}"),
            EventKind::Exit | EventKind::Yield | EventKind::Block | EventKind::Preempted => {
                assert_eq!(runs, Some(true), "{event:?}");
            }
            kind => panic!("a runtime records no {kind}"),
        }
        running.insert(event.who, event.kind == EventKind::Start);
    }
}

#[test]
fn another_process_has_the_schedule_recorded() {
    let runtime = named("schedule").build().unwrap();
    let mut page = page("schedule").expect("a page");
    runtime.run(|| spawn(yield_now).join().unwrap());
    page.record(HOUR.into()).unwrap();
    runtime.run(|| {
        let yields = || (0..100).for_each(|_| yield_now());
        let tasks: Vec<_> = (0..3).map(|_| spawn(yields)).collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
    });
    let batch = page.events(0);
    assert_eq!((batch.lost, batch.unknown), (0, 0));
    let count = |kind| batch.events.iter().filter(|event| event.kind == kind).count();
    assert_eq!((count(EventKind::New), count(EventKind::Yield)), (4, 300));
    assert!(batch.events.is_sorted_by_key(|event| event.at));
    assert_is_a_schedule(&batch.events);
}

#[test]
fn a_runtime_records_its_own_schedule() {
    for name in ["own", "unseen"] {
        let runtime = named(name).telemetry(name == "own").build().unwrap();
        runtime.record(HOUR);
        runtime.run(|| spawn(yield_now).join().unwrap());
        let trace = runtime.recorded();
        assert_eq!(trace.lost, 0);
        assert_is_a_schedule(&trace.events);
        let yields = trace.events.iter().filter(|event| event.kind == EventKind::Yield);
        assert_eq!(yields.count(), 1, "{trace:?}");
        assert_eq!(runtime.recorded(), Default::default(), "only what is new");
    }
}

#[test]
fn a_runtime_without_a_page_counts_all_the_same() {
    let runtime = named("none").telemetry(false).build().unwrap();
    assert!(page("none").is_none());
    runtime.run(|| spawn(|| ()).join().unwrap());
    let stats = runtime.stats();
    assert_eq!(stats.spawned, 2);
    assert!(stats.unseen.is_some_and(|why| why.contains("HEDDLE_TELEMETRY=off")));
}

#[test]
fn the_environment_turns_pages_off() {
    let test = "the_environment_turns_pages_off";
    if !common::is_child(test) {
        let child = common::child(test).env("HEDDLE_TELEMETRY", "off").output();
        return assert_success(child.unwrap());
    }
    let runtime = runtime("fifo");
    assert_eq!(find(std::process::id()).unwrap().len(), 0);
    assert!(runtime.stats().unseen.is_some());
}

/// With as many descriptors as a runtime needs without a page, it starts without.
#[test]
fn a_runtime_starts_without_a_page_if_there_is_no_descriptor_for_it() {
    let test = "a_runtime_starts_without_a_page_if_there_is_no_descriptor_for_it";
    let child = || {
        let mut all: Vec<File> = Vec::new();
        // What a first runtime opens once, it has.
        drop(runtime("fifo"));
        while let Ok(file) = File::open("/dev/null") {
            all.push(file);
        }
        let started = loop {
            match RuntimeBuilder::new().policy("fifo").workers(1).build() {
                Ok(runtime) => break runtime,
                Err(_) => drop(all.pop().expect("a runtime needs few descriptors")),
            }
        };
        let unseen = started.stats().unseen.expect("there is no descriptor left");
        assert!(unseen.contains("no page could be made"), "{unseen}");
        started.run(|| spawn(yield_now).join().unwrap());
        assert_eq!(started.stats().spawned, 2);
    };
    alone(test, child, assert_success);
}

#[test]
fn the_child_of_a_fork_writes_to_no_page_of_its_parent() {
    let runtime = named("fork").build().unwrap();
    let mut page = page("fork").expect("a page");
    page.record(HOUR.into()).unwrap();
    let yields = |n| (0..n).for_each(|_| yield_now());
    runtime.run(move || {
        yields(3);
        // SAFETY: the child yields, and ends without destructors.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            yields(50);
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        assert_eq!(blocking(|| unsafe { libc::waitpid(pid, &mut status, 0) }), pid);
        assert_eq!(status, 0);
        yields(2);
    });
    let events = page.events(0).events;
    let yields = events.iter().filter(|event| event.kind == EventKind::Yield).count();
    // Its return from the wait is one, too.
    assert!((5..50).contains(&yields), "{events:?}");
}

#[test]
fn every_descriptor_and_all_memory_goes_back() {
    let test = "every_descriptor_and_all_memory_goes_back";
    let child = || {
        drop(runtime("fifo"));
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let maps = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().filter(|line| line.contains("memfd:heddle")).count()
        };
        let before = open();
        (0..100).for_each(|_| drop(runtime("fifo")));
        assert_eq!((open(), maps()), (before, 0));
    };
    alone(test, child, assert_success);
}
