//! The screen on a terminal of memory, and rows from readings.

use std::time::{Duration, Instant};

use heddle_core::Histogram;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::{App, Wish};
use super::reading::{Counts, Culprit, Kind, Part, Reading, Service};
use super::row::Interval;
use super::view;

fn times(values: &[u64]) -> Histogram {
    let mut times = Histogram::default();
    values.iter().for_each(|&value| times.record(value));
    times
}

fn counts(n: u64) -> Counts {
    Counts {
        cpu_ns: Some(n * 500_000_000),
        inputs: Some(1_000 * n),
        waiting: Some(3),
        wait: Some(times(&vec![2_000; n as usize])),
        delays: Some((n * 70_000, n * 10)),
        preempted: Some(20 * n),
        ..Counts::default()
    }
}

fn service(id: &str, name: &str, kind: Kind, n: u64) -> Service {
    let part = |name: &str| Part { name: name.into(), counts: counts(n) };
    Service {
        id: id.into(),
        name: name.into(),
        kind,
        policy: "two-queue".into(),
        pids: vec![7, 8],
        counts: counts(n),
        parts: vec![part("worker 0"), part("worker 1")],
    }
}

/// Two readings, two seconds apart.
fn interval(services: impl Fn(u64) -> Vec<Service>, culprits: Option<u64>) -> Interval {
    let begin = Instant::now();
    let reading = |at, n| Reading {
        at,
        services: services(n),
        culprits: culprits
            .map(|ns| vec![Culprit { tid: 99, name: "batch\x1b".into(), delayed_ns: ns * n }]),
        missing: vec!["run-queue delays are means: not root".into()],
    };
    Interval::between(&reading(begin, 1), &reading(begin + Duration::from_secs(2), 3))
}

fn two(n: u64) -> Vec<Service> {
    let busy = Service { counts: counts(4 * n), ..service("b", "busy", Kind::Process, n) };
    vec![service("a", "evil\x1b[2J", Kind::Runtime, n), busy]
}

fn screen(app: &App, width: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, 14)).unwrap();
    terminal.draw(|frame| view::draw(frame, app)).unwrap();
    terminal.backend().to_string()
}

fn press(app: &mut App, code: KeyCode) -> Wish {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn figures_are_differences_over_time() {
    let interval = interval(two, None);
    let figures = &interval.services[0].figures;
    assert_eq!(interval.seconds, 2.0);
    assert_eq!((figures.load, figures.rate), (Some(0.5), Some(1_000.0)));
    assert_eq!((figures.waiting, figures.preemptions_per_second), (Some(3), Some(20.0)));
    assert_eq!(figures.wait_p50_ns, Some(2_047));
    assert_eq!((figures.run_queue_mean_ns, figures.run_queue_p99_ns), (Some(7_000), None));
    assert_eq!((figures.lost, figures.service_p99_ns), (None, None));
}

#[test]
fn a_service_that_has_just_come_has_no_row_yet() {
    let services = |n| if n == 1 { Vec::new() } else { two(n) };
    assert_eq!(interval(services, None).services, []);
}

#[test]
fn the_screen_shows_services_and_what_is_missing() {
    let mut app = App::default();
    assert!(screen(&app, 140).contains("Measuring the first interval."));
    app.update(interval(two, None));
    let shown = screen(&app, 140);
    let lines: Vec<&str> = shown
        .lines()
        .map(|line| line.trim_matches('"').trim_end())
        .filter(|line| !line.is_empty())
        .collect();
    let expected: Vec<&str> = include_str!("screen.txt").lines().collect();
    assert_eq!(lines, expected);
    assert!(!shown.contains('\x1b'));
}

#[test]
fn enter_opens_the_layers_and_escape_closes_them() {
    let mut app = App::default();
    app.update(interval(two, Some(1_000_000)));
    press(&mut app, KeyCode::Down);
    assert_eq!(press(&mut app, KeyCode::Enter), Wish::Nothing);
    let shown = screen(&app, 140);
    assert!(shown.contains("heddle top: busy (process, process 7 and 1 more)"), "{shown}");
    assert!(shown.contains("worker 0") && shown.contains("worker 1"), "{shown}");
    assert!(shown.contains("batch\\u{1b} 99: 2.00 ms"), "{shown}");
    press(&mut app, KeyCode::Down);
    assert!(!screen(&app, 140).contains("worker 0"), "scrolled");
    assert_eq!(press(&mut app, KeyCode::Esc), Wish::Nothing);
    assert!(!app.is_open);
    assert_eq!(press(&mut app, KeyCode::Esc), Wish::Quit);
    assert_eq!(press(&mut app, KeyCode::Char('q')), Wish::Quit);
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.key(ctrl_c), Wish::Interrupt);
}

#[test]
fn sorting_keeps_the_selection() {
    let mut app = App::default();
    app.update(interval(two, None));
    assert_eq!(app.selected().unwrap().id, "a");
    press(&mut app, KeyCode::Char('s'));
    assert_eq!((app.sort, &app.services()[0].id[..], app.at()), (Some(0), "b", Some(1)));
    app.update(interval(two, None));
    assert_eq!((&app.services()[0].id[..], app.at()), ("b", Some(1)));
    press(&mut app, KeyCode::Char('S'));
    assert_eq!((app.sort, app.at()), (None, Some(0)));
    // The service ends: its layers close, and another is selected.
    press(&mut app, KeyCode::Enter);
    let gone = |n| two(n).into_iter().skip(1).collect();
    app.update(interval(gone, None));
    assert_eq!((app.is_open, app.at()), (false, Some(0)));
    app.update(interval(|_| Vec::new(), None));
    assert!(screen(&app, 140).contains("No service"));
    let _ = [KeyCode::Up, KeyCode::Down, KeyCode::Enter]
        .map(|code| assert_eq!(press(&mut app, code), Wish::Nothing));
}

#[test]
fn a_small_terminal_is_no_error() {
    let mut app = App::default();
    app.update(interval(two, Some(1)));
    for (width, height) in [(1, 1), (20, 3), (80, 24)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view::draw(frame, &app)).unwrap();
    }
}
