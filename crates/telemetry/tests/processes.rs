//! Two processes: one counts and records, the other finds its page and reads it.
#![allow(missing_docs)]

use heddle_core::{CpuId, Event, EventKind, Histogram, Layer, Ns};
use heddle_telemetry::{Layout, Metric, Page, Reader, find, scan};
use heddle_test_support::{Running, until};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

const IS_WRITER: &str = "HEDDLE_TEST_WRITER";
const HOUR: Ns = Ns::from_secs(3600);

/// The other process: until its input ends it counts, and records events numbered from 0 once a reader wants them.
#[test]
fn writer() {
    if std::env::var_os(IS_WRITER).is_none() {
        return;
    }
    let layout = Layout {
        labels: "layer=test,name=a\x1bb",
        counters: &[("heddle_test_rounds_total", "worker=0"), ("heddle_test_unused", "")],
        histograms: &[("heddle_test_wait_seconds", "")],
        rings: &[("heddle_test_ring", "worker=0")],
        ring_events: 64,
        ..Layout::default()
    };
    let page = Page::create(&layout).unwrap();
    let (rounds, waits, ring) = (page.counter(0), page.histogram(0), page.ring(0));
    waits.record(1000);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    println!("\nready");
    let mut number = 0;
    loop {
        rounds.add(1);
        if ring.is_on() {
            ring.record(|| {
                Event::task(Ns::ZERO, CpuId(3), number, EventKind::Start).of(Layer::Runtime)
            });
            number += 1;
        } else {
            std::thread::yield_now();
        }
    }
}

fn start_writer() -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "writer", "--nocapture"]).env(IS_WRITER, "1");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "ready"));
    child.into()
}

fn only_page(pid: u32) -> Reader {
    let mut found = find(pid).unwrap();
    assert_eq!(found.len(), 1);
    found.pop().unwrap()
}

#[test]
fn counters_and_histograms_of_another_process_are_read() {
    let child = start_writer();
    let reader = only_page(child.pid());
    assert_eq!(reader.labels(), "layer=test,name=a\\u{1b}b");
    let [Metric { name, labels, value: first }] = &reader.counters()[..] else {
        panic!("one counter is in use: {:?}", reader.counters())
    };
    assert_eq!((&name[..], &labels[..]), ("heddle_test_rounds_total", "worker=0"));
    until("it counts", || reader.counters()[0].value > *first);
    let mut expected = Histogram::default();
    expected.record(1000);
    assert_eq!(reader.histograms()[0].value, expected);
    let is_it = |reader: &Reader| reader.process().map(|process| process.pid) == Some(child.pid());
    assert!(scan().iter().any(is_it));
}

#[test]
fn events_are_whole_and_in_order_and_what_was_missed_is_counted() {
    let child = start_writer();
    let mut reader = only_page(child.pid());
    assert_eq!(reader.rings()[0].value, 0);
    assert_eq!(reader.events(0), heddle_telemetry::Batch::default());
    let before = heddle_sys::clock::now();
    reader.record(HOUR).unwrap();
    let (mut number, mut lost, mut last) = (0, 0, Ns::ZERO);
    until("events come, and more than fit into the ring", || {
        let batch = reader.events(0);
        lost += batch.lost;
        number += batch.lost as u32;
        for event in &batch.events {
            assert_eq!(
                (event.who, event.kind, event.layer),
                (number, EventKind::Start, Layer::Runtime)
            );
            assert!(event.at >= last, "{event:?} after {last}");
            (number, last) = (number + 1, event.at);
        }
        assert_eq!(batch.unknown, 0);
        lost > 0 && last > Ns::ZERO
    });
    // The rate is exact within 1 %, and a time stamp is taken before it is read.
    let slack = Ns((heddle_sys::clock::now() - before).0 / 100 + 1_000_000);
    assert!(last + slack >= before && last <= heddle_sys::clock::now() + slack, "{before} {last}");
}

#[test]
fn recording_ends_by_itself_if_the_reader_is_gone() {
    let child = start_writer();
    let reader = only_page(child.pid());
    reader.record(Ns::from_ms(1)).unwrap();
    drop(reader);
    until("nothing more is recorded", || {
        let mut reader = only_page(child.pid());
        let rounds = reader.counters()[0].value;
        until("it goes on", || reader.counters()[0].value > rounds + 100);
        reader.events(0) == heddle_telemetry::Batch::default()
    });
}

#[test]
fn a_page_goes_with_its_process_and_can_be_read_to_the_end() {
    let child = start_writer();
    let reader = only_page(child.pid());
    assert!(reader.lives());
    until("it counts", || reader.counters()[0].value > 0);
    let pid = child.pid();
    drop(child);
    assert!(!reader.lives() && reader.counters()[0].value > 0);
    assert!(find(pid).is_err());
}

#[test]
fn the_child_of_a_fork_has_no_page_of_its_parent() {
    let layout = Layout { labels: "layer=fork", counters: &[("a_total", "")], ..Layout::default() };
    let page = Page::create(&layout).unwrap();
    page.counter(0).add(1);
    let mine =
        |pid| find(pid).unwrap().iter().filter(|reader| reader.labels() == "layer=fork").count();
    assert_eq!(mine(std::process::id()), 1);
    assert!(heddle_sys::fork::in_child(|| mine(std::process::id()) == 0).unwrap());
    drop(page);
    assert_eq!(mine(std::process::id()), 0);
}
