//! The layer for `tracing`: spans and events of tasks, as a reader of the runtime's page sees them.
#![allow(missing_docs)]

use heddle::RuntimeBuilder;
use heddle::tracing::MarkLayer;
use heddle_telemetry::{Reader, find};
use std::time::Duration;
use tracing_subscriber::layer::SubscriberExt as _;

/// The page of the runtime with this name.
fn page(name: &str) -> Reader {
    let label = format!(",runtime={name}");
    let mut pages = find(std::process::id()).unwrap().into_iter();
    pages.find(|page| page.labels().ends_with(&label)).expect("a page")
}

/// Task, phase, span and name of each mark in a page with one ring.
fn marks(page: &mut Reader) -> Vec<(u32, u32, u64, String)> {
    let batch = page.events(0);
    assert_eq!((batch.lost, batch.unknown), (0, 0));
    let marks = batch.events.iter().filter(|event| event.kind.name() == "mark");
    let name = |number| page.mark_name(number).expect("a name");
    marks.map(|mark| (mark.who, mark.arg, mark.request, name(mark.by))).collect()
}

/// All in one: a process has one global subscriber.
#[test]
fn spans_and_events_of_tasks_are_marks_with_names() {
    let subscriber = tracing_subscriber::registry().with(MarkLayer::default());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let runtime = RuntimeBuilder::new().name("tracing").policy("fifo").workers(1).build().unwrap();
    let mut page = page("tracing");
    let work = || {
        let _request = tracing::info_span!("request", id = 7).entered();
        tracing::info_span!("parse").in_scope(|| tracing::info!(name: "parsed", "ready"));
        heddle::yield_now();
        tracing::info!("no name");
    };
    runtime.run(work);
    assert!(marks(&mut page).is_empty(), "no reader wants them");

    page.record(Duration::from_secs(3600).into()).unwrap();
    work();
    assert!(marks(&mut page).is_empty(), "this thread is no task");
    runtime.run(work);
    let found = marks(&mut page);
    let shapes: Vec<_> = found.iter().map(|(_, phase, _, name)| (*phase, &name[..])).collect();
    let [first @ .., (0, place), (2, "request")] = &shapes[..] else { panic!("{found:?}") };
    assert_eq!(first, [(1, "request"), (1, "parse"), (0, "parsed"), (2, "parse")]);
    assert!(place.starts_with("crates/heddle/tests/tracing.rs:"), "{place}");
    let (task, request) = (found[0].0, found[0].2);
    assert!(found.iter().all(|mark| mark.0 == task));
    assert_eq!((found[5].2, found[2].2, found[1].2 == found[3].2), (request, 0, true));

    // Tasks that interleave, and an async task, have marks of their own.
    runtime.run(|| {
        let tasks: Vec<_> = (0..3).map(|_| heddle::spawn(work)).collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
        let poll = || heddle::task::spawn(async move { work() });
        heddle::block_on(poll()).unwrap();
    });
    let found = marks(&mut page);
    assert_eq!(found.len(), 4 * 6);
    for task in found.iter().map(|mark| mark.0) {
        let own = found.iter().filter(|mark| mark.0 == task).map(|mark| mark.1);
        let mut open = 0_i32;
        for phase in own {
            open += [0, 1, -1][phase as usize];
            assert!((0..=2).contains(&open), "{found:?}");
        }
        assert_eq!(open, 0, "{found:?}");
    }
}
