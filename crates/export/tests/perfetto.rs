//! Traces read back: times, names, switches and slices are those of the events.

use heddle_core::{CpuId, Event, EventKind, Layer, MarkPhase, Ns};
use heddle_export::perfetto::proto::{InternedData, Packet, event_type};
use heddle_export::perfetto::{ANY, Clocks, Source, Summary, Trace};
use proptest::prelude::*;
use prost::Message;
use std::collections::BTreeMap;

/// A trace, as a file of the format.
#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(message, repeated, tag = "1")]
    packets: Vec<Packet>,
}

const CLOCKS: Clocks = Clocks { monotonic: 5_000, boottime: 1_000_005_000 };

fn finish(trace: Trace<Vec<u8>>) -> (Vec<Packet>, Summary) {
    let (bytes, summary) = trace.finish().unwrap();
    assert_eq!(bytes.len() as u64, summary.bytes);
    (File::decode(&bytes[..]).unwrap().packets, summary)
}

fn switch(at: u64, cpu: u16, by: u32, who: u32, delay: u64, arg: u32) -> Event {
    let event = Event::task(Ns(at), CpuId(cpu), who, EventKind::Start).of(Layer::Kernel);
    Event { by, request: delay, arg, ..event }
}

fn task(at: u64, cpu: u16, task: u32, kind: EventKind) -> Event {
    Event::task(Ns(at), CpuId(cpu), task, kind).of(Layer::Runtime)
}

fn request(at: u64, who: u32, request: u64, kind: EventKind, layer: Layer) -> Event {
    Event { request, ..Event::task(Ns(at), CpuId(0), who, kind).of(layer) }
}

/// Time, CPU, state of the one that leaves, the one that gets the CPU, and its name.
type Switch = (u64, u16, i64, i32, String);
/// Time, CPU, thread.
type Waking = (u64, u16, i32);

fn scheduling(packets: &[Packet]) -> (Vec<Switch>, Vec<Waking>) {
    let (mut switches, mut wakings) = (Vec::new(), Vec::new());
    for bundle in packets.iter().filter_map(|packet| packet.ftrace_events.as_ref()) {
        let cpu = u16::try_from(bundle.cpu.unwrap()).unwrap();
        let columns = bundle.compact_sched.as_ref().unwrap();
        let mut at = 0;
        for row in 0..columns.switch_at.len() {
            at += columns.switch_at[row];
            let name = columns.names[columns.switch_next_name[row] as usize].clone();
            let (state, next) = (columns.switch_prev_state[row], columns.switch_next[row]);
            switches.push((at, cpu, state, next, name));
        }
        assert_eq!(columns.switch_next_priority.len(), columns.switch_at.len());
        let mut at = 0;
        for row in 0..columns.waking_at.len() {
            at += columns.waking_at[row];
            wakings.push((at, cpu, columns.waking[row]));
        }
        assert_eq!(columns.waking_name.len(), columns.waking_at.len());
    }
    (switches, wakings)
}

/// A track event as it is meant: names and times resolved.
#[derive(Debug, PartialEq)]
struct Decoded {
    at: u64,
    track: String,
    kind: i32,
    name: String,
    value: Option<i64>,
    flows: Vec<u64>,
}

/// Resolves names and incremental clocks, as the format says.
fn events(packets: &[Packet]) -> Vec<Decoded> {
    let mut tracks = BTreeMap::new();
    let mut names: BTreeMap<(u32, u64), String> = BTreeMap::new();
    let mut times = BTreeMap::new();
    let mut seen = Vec::new();
    for packet in packets {
        if let Some(track) = &packet.track {
            tracks.insert(track.uuid.unwrap(), track.name.clone().unwrap_or_default());
        }
        let Some(sequence) = packet.sequence else { continue };
        if packet.sequence_flags == Some(1) {
            names.retain(|(of, _), _| *of != sequence);
            let clocks = &packet.clock_snapshot.as_ref().unwrap().clocks;
            let own = clocks.iter().find(|clock| clock.is_incremental == Some(true)).unwrap();
            times.insert(sequence, own.timestamp.unwrap());
        }
        let InternedData { names: new, .. } = packet.interned.clone().unwrap_or_default();
        names.extend(new.into_iter().map(|n| ((sequence, n.number.unwrap()), n.name.unwrap())));
        let Some(event) = &packet.track_event else { continue };
        let at = match packet.timestamp_clock {
            Some(_) => packet.timestamp.unwrap(),
            None => {
                let time = times.get_mut(&sequence).unwrap();
                *time += packet.timestamp.unwrap();
                *time
            }
        };
        let name = event.name.map(|n| names[&(sequence, n)].clone()).unwrap_or_default();
        let flows = [&event.flows[..], &event.ended_flows[..]].concat();
        let track = tracks[&event.track.unwrap()].clone();
        seen.push(Decoded {
            at,
            track,
            kind: event.event_type.unwrap(),
            name,
            value: event.value,
            flows,
        });
    }
    seen
}

fn slices<'a>(events: &'a [Decoded], track: &str) -> Vec<(u64, i32, &'a str)> {
    let of = events.iter().filter(|event| event.track == track);
    of.map(|event| (event.at, event.kind, &event.name[..])).collect()
}

#[test]
fn switches_come_back_with_times_names_states_and_wakeups() {
    let mut trace = Trace::new(Vec::new(), CLOCKS).unwrap();
    let source = trace.source(&Source::default()).unwrap();
    trace.thread(10, 11, "server", Some(120)).unwrap();
    trace.thread(10, 12, "evil\nname\u{1b}", None).unwrap();
    assert!(trace.is_named(11) && !trace.is_named(13));
    let preempted = 1 << 31;
    let events = [
        switch(6_000, 0, 0, 11, 0, 0),
        switch(7_000, 0, 11, 12, 0, 1),
        switch(8_000, 0, 12, 11, 0, preempted),
        // 11 had waited for 300 ns before it got the CPU at 8,000; it had slept, so it was woken at 7,700.
        switch(9_000, 0, 11, 12, 300, 2),
        // 12 had been preempted: no wakeup.
        switch(9_500, 0, 12, 13, 1_000, 0x80),
        switch(6_500, 3, 0, 13, 0, 0),
    ];
    events.iter().for_each(|event| trace.event(source, event).unwrap());
    let (packets, summary) = finish(trace);
    assert_eq!((summary.events, summary.ignored, summary.lost), (6, 0, 0));
    let (switches, wakings) = scheduling(&packets);
    let boot = |at: u64| at + 1_000_000_000;
    let named = |name: &str| name.to_owned();
    let expected = [
        (boot(6_000), 0, 0, 11, named("server")),
        (boot(7_000), 0, 1, 12, named("evil\nname\u{1b}")),
        (boot(8_000), 0, 0x100, 11, named("server")),
        (boot(9_000), 0, 2, 12, named("evil\nname\u{1b}")),
        (boot(9_500), 0, 0x10, 13, named("<...>")),
        (boot(6_500), 3, 0, 13, named("<...>")),
    ];
    assert_eq!(switches, expected);
    assert_eq!(wakings, [(boot(7_700), 0, 11)]);
}

/// 30 s of two CPUs with 10,000 switches a second each, and a wakeup for each: sizes are the same on every machine.
#[test]
fn half_a_minute_of_a_busy_machine_takes_less_than_12_mb() {
    let mut trace = Trace::new(Vec::new(), CLOCKS).unwrap();
    let source = trace.source(&Source::default()).unwrap();
    (0..64).for_each(|n| trace.thread(4_000, 4_000 + n, &format!("worker-{n}"), None).unwrap());
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 33
    };
    let mut running = [0; 2];
    let mut now = [CLOCKS.monotonic; 2];
    for n in 0..600_000_usize {
        let cpu = n % 2;
        now[cpu] += 50_000 + next() % 100_000;
        let who = 4_000 + 2 * u32::try_from(next() % 32).unwrap() + cpu as u32;
        let event = switch(now[cpu], cpu as u16, running[cpu], who, next() % 20_000, 1);
        running[cpu] = who;
        trace.event(source, &event).unwrap();
    }
    let (packets, summary) = finish(trace);
    let (switches, wakings) = scheduling(&packets);
    assert_eq!(switches.len(), 600_000);
    assert!(wakings.len() > 550_000, "{}", wakings.len());
    assert!(summary.bytes < 12_000_000, "{} bytes", summary.bytes);
    // Packets are full before they are written, and none holds much more: memory does not grow.
    let bundles = packets.iter().filter_map(|packet| packet.ftrace_events.as_ref());
    let sizes = bundles.map(|bundle| bundle.compact_sched.as_ref().unwrap().switch_at.len());
    assert!(sizes.into_iter().all(|size| size <= 1 << 14));
}

#[test]
fn tasks_are_slices_of_the_workers_that_ran_them() {
    use EventKind::{Block, Exit, New, Preempted, Start};
    let mut trace = Trace::new(Vec::new(), CLOCKS).unwrap();
    let source = Source { name: "server", process: Some(10), shares_requests: false };
    let source = trace.source(&source).unwrap();
    let schedule = [
        task(6_000, 0, 1, New),
        task(6_100, 1, 2, New),
        task(6_200, 0, 1, Start),
        task(6_300, 1, 2, Start),
        // It goes to the queue of worker 1, but worker 0 ran it.
        task(6_400, 1, 1, Preempted),
        task(6_500, 1, 2, Block),
        task(6_600, 1, 1, Start),
        task(6_700, 1, 1, Exit),
        // Of another ring, read later: time goes back.
        task(6_450, 0, 3, Start),
    ];
    schedule.iter().for_each(|event| trace.event(source, event).unwrap());
    let (packets, summary) = finish(trace);
    assert_eq!(summary.events, 9);
    let seen = events(&packets);
    let (begin, end) = (event_type::BEGIN, event_type::END);
    let worker = [(6_200, begin, "task 1"), (6_400, end, ""), (6_450, begin, "task 3")];
    assert_eq!(slices(&seen, "worker 0"), worker);
    let worker =
        [(6_300, begin, "task 2"), (6_500, end, ""), (6_600, begin, "task 1"), (6_700, end, "")];
    assert_eq!(slices(&seen, "worker 1"), worker);
    let waiting = seen.iter().filter(|event| event.track == "waiting").map(|e| e.value.unwrap());
    assert_eq!(waiting.collect::<Vec<_>>(), [1, 2, 1, 0, 1, 0, 0]);
}

#[test]
fn marks_of_a_task_are_slices_and_moments_of_its_own_track() {
    use MarkPhase::{Begin, End, Moment};
    let mut trace = Trace::new(Vec::new(), CLOCKS).unwrap();
    let source = trace.source(&Source { name: "server", ..Source::default() }).unwrap();
    let mark = |trace: &mut Trace<_>, at, of, phase: MarkPhase, name| {
        let event = Event { arg: phase as u32, ..task(at, 0, of, EventKind::Mark) };
        trace.mark(source, &event, name).unwrap();
    };
    mark(&mut trace, 6_000, 1, End, "before the recording");
    mark(&mut trace, 6_100, 1, Begin, "request");
    mark(&mut trace, 6_200, 2, Begin, "request");
    mark(&mut trace, 6_300, 1, Begin, "parse");
    mark(&mut trace, 6_400, 1, Moment, "parsed");
    mark(&mut trace, 6_500, 1, End, "parse");
    // What is open ends with the task, and at a hole.
    trace.event(source, &task(6_600, 0, 1, EventKind::Exit)).unwrap();
    trace.event(source, &task(6_700, 0, 0, EventKind::Lost)).unwrap();
    mark(&mut trace, 6_800, 2, End, "request");
    let (packets, summary) = finish(trace);
    assert_eq!((summary.events, summary.ignored), (7, 2));
    let seen = events(&packets);
    let (begin, end, moment) = (event_type::BEGIN, event_type::END, event_type::INSTANT);
    let first = [
        (6_100, begin, "request"),
        (6_300, begin, "parse"),
        (6_400, moment, "parsed"),
        (6_500, end, ""),
        (6_600, end, ""),
    ];
    assert_eq!(slices(&seen, "task 1: marks"), first);
    assert_eq!(slices(&seen, "task 2: marks"), [(6_200, begin, "request"), (6_700, end, "")]);
}

#[test]
fn a_request_is_a_slice_and_a_flow_over_the_layers() {
    use EventKind::{Answer, Arrive, Assign, Take};
    let mut trace = Trace::new(Vec::new(), CLOCKS).unwrap();
    let shared = Source { name: "steer", shares_requests: true, ..Source::default() };
    let kernel = trace.source(&shared).unwrap();
    let server = trace.source(&Source { name: "server", ..shared }).unwrap();
    let other = trace.source(&Source { name: "other", ..Source::default() }).unwrap();
    trace.event(kernel, &request(6_000, 0, 77, Arrive, Layer::Steer)).unwrap();
    trace.event(kernel, &request(6_010, 4, 77, Assign, Layer::Steer)).unwrap();
    trace.event(server, &request(6_100, 4, 77, Take, Layer::Events)).unwrap();
    trace.event(server, &request(6_150, 4, 78, Take, Layer::Events)).unwrap();
    trace.event(server, &request(6_200, 4, 77, Answer, Layer::Events)).unwrap();
    trace.event(server, &request(6_300, 4, 78, Answer, Layer::Events)).unwrap();
    trace.event(other, &request(6_400, 1, 77, Arrive, Layer::Events)).unwrap();
    let (packets, _) = finish(trace);
    let seen = events(&packets);
    let flow: Vec<_> = seen.iter().filter(|event| event.flows == [77]).collect();
    let names: Vec<_> = flow.iter().map(|event| (&event.track[..], &event.name[..])).collect();
    let expected = [
        ("steer: arrivals", "arrive"),
        ("steer: executor 4", "assign"),
        ("events: executor 4", "request"),
        ("events: executor 4", ""),
    ];
    assert_eq!(names, expected);
    assert!(seen.last().unwrap().flows[0] > 77, "another source's request 77 is another request");
    // The two overlapped, so they are on two tracks of the same name.
    let tracks = packets.iter().filter_map(|packet| packet.track.as_ref());
    let same = tracks.filter(|track| track.name.as_deref() == Some("events: executor 4"));
    assert_eq!(same.count(), 2);
}

#[test]
fn a_hole_is_said_and_what_was_open_ends() {
    let mut trace = Trace::new(Vec::new(), CLOCKS).unwrap();
    let source = trace.source(&Source { name: "server", ..Source::default() }).unwrap();
    trace.event(source, &task(6_000, 0, 1, EventKind::Start)).unwrap();
    let lost = Event { arg: 12, ..task(6_500, 0, 0, EventKind::Lost) };
    trace.event(source, &lost).unwrap();
    trace.event(source, &lost.of(Layer::Kernel)).unwrap();
    let (packets, summary) = finish(trace);
    assert_eq!(summary.lost, 24);
    let seen = events(&packets);
    let expected = [
        (6_000, event_type::BEGIN, "task 1"),
        (6_500, event_type::END, ""),
        (6_500, event_type::INSTANT, "12 events are missing"),
    ];
    assert_eq!(slices(&seen, "worker 0"), expected);
    assert!(packets.iter().any(|packet| packet.previous_dropped == Some(true)));
    let bundle = packets.iter().find_map(|packet| packet.ftrace_events.as_ref()).unwrap();
    assert_eq!((bundle.cpu, bundle.lost_events), (Some(0), Some(true)));
}

#[test]
fn a_hole_in_the_ring_of_all_workers_ends_what_all_ran() {
    let mut trace = Trace::new(Vec::new(), CLOCKS).unwrap();
    let source = trace.source(&Source { name: "server", ..Source::default() }).unwrap();
    trace.event(source, &task(6_000, 1, 1, EventKind::Start)).unwrap();
    trace.event(source, &task(6_100, 2, 2, EventKind::Start)).unwrap();
    let lost = Event { cpu: ANY, ..task(6_500, 0, 0, EventKind::Lost) };
    trace.event(source, &lost).unwrap();
    let (packets, _) = finish(trace);
    let seen = events(&packets);
    assert_eq!(slices(&seen, "worker 1").len(), 3, "it begins, ends, and events are missing");
    assert_eq!(slices(&seen, "worker 2")[1], (6_500, event_type::END, ""));
}

#[test]
fn names_are_forgotten_before_they_fill_the_memory() {
    let mut trace = Trace::new(Vec::new(), CLOCKS).unwrap();
    let source = trace.source(&Source::default()).unwrap();
    for n in 0..40_000 {
        trace.event(source, &task(6_000 + u64::from(n), 0, n, EventKind::Start)).unwrap();
    }
    let (packets, _) = finish(trace);
    let started = packets.iter().filter(|packet| packet.sequence_flags == Some(1)).count();
    assert_eq!(started, 3);
    let seen = events(&packets);
    let last = seen.iter().rfind(|event| event.kind == event_type::BEGIN).unwrap();
    assert_eq!((last.at, &last.name[..]), (45_999, "task 39999"));
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let error = Trace::new(Full, CLOCKS).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn the_machines_clocks_differ_by_the_time_that_it_was_suspended() {
    let (one, two) = (Clocks::now(), Clocks::now());
    assert!(one.monotonic <= two.monotonic && one.boottime <= two.boottime);
    assert!(one.monotonic / 1_000_000 <= one.boottime / 1_000_000);
}

proptest! {
    /// Whatever a page or a ring says: the trace has the right form, times are kept, and slices nest.
    #[test]
    fn any_events_are_a_trace(
        all in proptest::collection::vec((any::<[u64; 4]>(), 0..60_u8, 0..10_u8, 0..4_u64), 0..200)
    ) {
        let mut trace = Trace::new(Vec::new(), CLOCKS).unwrap();
        let source = trace.source(&Source { name: "any", ..Source::default() }).unwrap();
        let mut written = Vec::new();
        for (words, kind, layer, small) in all {
            let last = small << 32 | u64::from(kind) << 48 | u64::from(layer) << 56;
            let Ok(event) = Event::try_from([words[0], words[1] % 5, words[2] % 9, last]) else { continue };
            trace.event(source, &event).unwrap();
            written.push(event);
        }
        let (packets, summary) = finish(trace);
        prop_assert_eq!(summary.events + summary.ignored, written.len() as u64);
        let mut open: BTreeMap<u64, i64> = BTreeMap::new();
        for event in packets.iter().filter_map(|packet| packet.track_event.as_ref()) {
            let depth = open.entry(event.track.unwrap()).or_default();
            *depth += match event.event_type.unwrap() {
                event_type::BEGIN => 1,
                event_type::END => -1,
                _ => 0,
            };
            prop_assert!((0..=1).contains(depth));
        }
        let seen = events(&packets);
        prop_assert!(seen.iter().all(|seen| written.iter().any(|event| event.at.0 == seen.at)));
    }
}
