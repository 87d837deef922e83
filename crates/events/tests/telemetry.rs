//! The queue's page: what other processes read there is what the workers count. Each test has a policy of its
//! own, by which it knows its page among those of the others.

use heddle_events::{EventOptions, EventQueue, Stats, Worker};
use heddle_sys::fork::in_child;
use heddle_telemetry::{Reader, find};
use std::collections::HashMap;
use std::fs::File;
use std::process::Command;
use std::time::Duration;

const ALONE: &str = "HEDDLE_TEST_ALONE";

fn pages(policy: &str) -> Vec<Reader> {
    let labels = format!("layer=events,policy={policy}");
    // An error is that another test is making the only page.
    let all = find(std::process::id()).unwrap_or_default().into_iter();
    all.filter(|page| page.labels() == labels).collect()
}

fn only_page(policy: &str) -> Reader {
    let mut pages = pages(policy);
    assert_eq!(pages.len(), 1, "{policy}");
    pages.remove(0)
}

fn queue(policy: &str) -> EventQueue {
    EventQueue::builder().policy(policy).build().unwrap()
}

fn sums(page: &Reader) -> HashMap<String, u64> {
    let mut sums = HashMap::new();
    for counter in page.counters() {
        *sums.entry(counter.name).or_default() += counter.value;
    }
    sums
}

fn expected(stats: &Stats, lost: u64) -> HashMap<String, u64> {
    let sum = |of: fn(&heddle_events::WorkerStats) -> u64| stats.workers.iter().map(of).sum();
    let all = [
        ("taken_total", sum(|worker| worker.events)),
        ("taken_high_total", sum(|worker| worker.high)),
        ("waits_total", sum(|worker| worker.waits)),
        ("parks_total", sum(|worker| worker.parks)),
        ("steals_total", sum(|worker| worker.steals)),
        ("stolen_total", sum(|worker| worker.stolen)),
        ("forwarded_total", sum(|worker| worker.forwarded)),
        ("rings_total", sum(|worker| worker.rings)),
        ("busy_seconds_total", sum(|worker| worker.busy.0)),
        ("lost_total", lost),
        ("workers", stats.workers.len() as u64),
    ];
    all.into_iter().map(|(name, count)| (format!("heddle_events_{name}"), count)).collect()
}

/// Has the worker take `n` events.
fn take(queue: &EventQueue, worker: &mut Worker, n: usize) {
    let event = queue.register_user(1, EventOptions::default()).unwrap();
    for _ in 0..n {
        queue.trigger(event).unwrap();
        assert_eq!(worker.wait(Some(heddle_test_support::PATIENCE)).unwrap().count(), 1);
    }
    // The last turn ends.
    assert_eq!(worker.wait(Some(Duration::ZERO)).unwrap().count(), 0);
    assert!(queue.deregister(event).is_ok());
}

/// Runs `test` in a process of its own, unless this is it already.
fn is_alone(test: &str, telemetry: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--exact", test, "--nocapture"]).env(ALONE, "1");
    let run = command.env("HEDDLE_TELEMETRY", telemetry).output().unwrap();
    let [said, complaint] = [&run.stdout, &run.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(run.status.success() && said.contains("1 passed"), "{said}{complaint}");
    false
}

#[test]
fn other_processes_read_what_the_workers_count() {
    let queue = queue("fifo");
    let page = only_page("fifo");
    let (mut here, gone) = (queue.worker().unwrap(), queue.worker().unwrap());
    let pinned = queue.register_user(2, EventOptions::default().pin(&gone)).unwrap();
    take(&queue, &mut here, 3);
    queue.trigger(pinned).unwrap();
    drop(gone);
    take(&queue, &mut here, 2);
    let stats = queue.stats();
    assert_eq!((stats.workers[0].events, queue.undelivered()), (5, 1));
    assert_eq!((sums(&page), stats.unseen.as_deref()), (expected(&stats, 1), None));
}

#[test]
fn no_counter_falls_when_a_worker_leaves_and_the_next_one_begins_at_zero() {
    let queue = queue("queue-affinity");
    let page = only_page("queue-affinity");
    for round in 1..=3 {
        let mut worker = queue.worker().unwrap();
        take(&queue, &mut worker, 4);
        assert_eq!(queue.stats().workers[0].events, 4);
        let taken = page.counters().into_iter().find(|one| one.name.ends_with("_taken_total"));
        let taken = taken.map(|one| (one.labels, one.value));
        assert_eq!(taken, Some(("worker=0".to_owned(), 4 * round)));
    }
}

#[test]
fn the_page_names_the_present_policy() {
    let queue = queue("cpu-affinity");
    let page = only_page("cpu-affinity");
    queue.set_policy("best-of-two").unwrap();
    assert!(queue.set_policy("unknown").is_err());
    assert_eq!(page.labels(), "layer=events,policy=best-of-two");
}

#[test]
fn each_queue_has_a_page_which_goes_with_it() {
    let test = "each_queue_has_a_page_which_goes_with_it";
    if !is_alone(test, "on") {
        return;
    }
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // What a first queue opens once, it has.
    drop(queue("hybrid").worker().unwrap());
    let before = open();
    let queues: Vec<_> = (0..100).map(|_| queue("hybrid")).collect();
    let seen = queues.iter().filter(|queue| queue.stats().unseen.is_none()).count();
    assert_eq!(pages("hybrid").len(), seen);
    assert!(seen >= 32, "a process has room for some pages, and here for {seen}");
    // Those without a page count for themselves.
    let last = queues.last().unwrap();
    take(last, &mut last.worker().unwrap(), 2);
    drop(queues);
    assert_eq!((open(), pages("hybrid").len()), (before, 0));
}

#[test]
fn the_child_of_a_fork_writes_to_no_page_of_its_parent_and_has_its_own() {
    let test = "the_child_of_a_fork_writes_to_no_page_of_its_parent_and_has_its_own";
    if !is_alone(test, "on") {
        return;
    }
    let parent = queue("hybrid");
    let mut worker = parent.worker().unwrap();
    take(&parent, &mut worker, 3);
    let before = sums(&only_page("hybrid"));
    let child = || {
        assert!(pages("hybrid").is_empty(), "its parent's is not its own");
        drop((parent.clone(), parent.stats()));
        let queue = queue("hybrid");
        take(&queue, &mut queue.worker().unwrap(), 5);
        sums(&only_page("hybrid"))["heddle_events_taken_total"] == 5
    };
    assert!(in_child(child).unwrap());
    assert_eq!(sums(&only_page("hybrid")), before);
}

#[test]
fn a_queue_without_a_page_counts_all_the_same() {
    let queue = EventQueue::builder()
        .policy("work-stealing:quantum=none")
        .telemetry(false)
        .build()
        .unwrap();
    assert!(pages("work-stealing").is_empty());
    take(&queue, &mut queue.worker().unwrap(), 2);
    let unseen = queue.stats().unseen;
    assert!(unseen.is_some_and(|why| why.contains("HEDDLE_TELEMETRY=off")));
}

#[test]
fn the_environment_turns_pages_off() {
    if is_alone("the_environment_turns_pages_off", "off") {
        let queue = queue("hybrid");
        assert_eq!(find(std::process::id()).unwrap().len(), 0);
        assert!(queue.stats().unseen.is_some());
    }
}

#[test]
fn a_queue_is_made_without_a_page_if_there_is_no_descriptor_for_it() {
    let test = "a_queue_is_made_without_a_page_if_there_is_no_descriptor_for_it";
    if !is_alone(test, "on") {
        return;
    }
    let mut all: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        all.push(file);
    }
    let queue = queue("hybrid");
    let unseen = queue.stats().unseen.expect("there is no descriptor left");
    assert!(unseen.contains("no page could be made"), "{unseen}");
    drop(all);
    take(&queue, &mut queue.worker().unwrap(), 2);
}
