//! The tracks of one source: tasks on the workers or CPUs that run them, requests on executors, counters.

use std::collections::BTreeMap;
use std::io::{self, Write};

use heddle_core::{CpuId, Event, EventKind, Layer, MarkPhase};

use super::Clocks;
use super::out::{Packets, Sequence};
use super::proto::{CounterDescriptor, Packet, TrackDescriptor, TrackEvent, event_type};
use super::requests::{Placement, Requests};

/// Tracks of a source. What a source writes is not trusted to name few executors.
const ROWS: usize = 1 << 12;

/// The CPU of a hole in a ring that has the events of all workers.
pub const ANY: CpuId = CpuId(u16::MAX);

/// What a track is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    /// What a worker or CPU runs.
    Worker(Layer, u16),
    /// Requests of an executor.
    Executor(Layer, u32, u16),
    /// Requests that have no executor yet.
    Arrivals(Layer),
    /// Marks of a task.
    Task(Layer, u32),
    Counter(String),
}

impl Row {
    fn of(place: Placement) -> Row {
        Row::Executor(place.executor.0, place.executor.1, place.track)
    }

    fn name(&self) -> String {
        match self {
            Row::Worker(Layer::Runtime | Layer::Events | Layer::Go, n) => format!("worker {n}"),
            Row::Worker(_, n) => format!("CPU {n}"),
            Row::Executor(layer, n, _) => format!("{layer}: executor {n}"),
            Row::Arrivals(layer) => format!("{layer}: arrivals"),
            Row::Task(_, n) => format!("task {n}: marks"),
            Row::Counter(name) => name.clone(),
        }
    }
}

/// The tracks of a source, and what is open on them.
pub struct Tracks {
    index: u64,
    root: u64,
    shares_requests: bool,
    sequence: Sequence,
    rows: BTreeMap<Row, u64>,
    /// The task that each worker runs.
    running: BTreeMap<(Layer, u16), u32>,
    /// What each task has begun and not ended, by its marks.
    spans: BTreeMap<(Layer, u32), u32>,
    /// Tasks that were queued and not started, since the last hole.
    waiting: i64,
    requests: Requests,
    pub ignored: u64,
}

impl Tracks {
    pub fn new(index: usize, root: u64, shares_requests: bool, clocks: Clocks) -> Tracks {
        /// Number 1 is the kernel's.
        const FIRST: u32 = 2;
        Tracks {
            index: index as u64,
            root,
            shares_requests,
            sequence: Sequence::new(FIRST + index as u32, clocks),
            rows: BTreeMap::new(),
            running: BTreeMap::new(),
            spans: BTreeMap::new(),
            waiting: 0,
            requests: Requests::default(),
            ignored: 0,
        }
    }

    pub fn event<W: Write>(
        &mut self,
        out: &mut Packets<W>,
        tracks: &mut u64,
        event: &Event,
    ) -> io::Result<()> {
        let mut pen = Pen { of: self, out, tracks, event };
        match event.kind {
            EventKind::New | EventKind::Wakeup => pen.queued(),
            EventKind::Start => pen.start(),
            EventKind::Preempted | EventKind::Yield => pen.leave().and_then(|()| pen.queued()),
            EventKind::Block => pen.leave(),
            EventKind::Exit => pen.leave().and_then(|()| pen.end_spans(event.who)),
            EventKind::Arrive => pen.moment(Row::Arrivals(event.layer), true),
            EventKind::Assign => {
                let place = Placement { executor: (event.layer, event.who), track: 0 };
                pen.moment(Row::of(place), true)
            }
            EventKind::Take => pen.take(),
            EventKind::Answer | EventKind::Drop => pen.answer(),
            EventKind::Lost => pen.lost(),
            _ => pen.moment(Row::Worker(event.layer, event.cpu.0), false),
        }
    }

    pub fn mark<W: Write>(
        &mut self,
        out: &mut Packets<W>,
        tracks: &mut u64,
        event: &Event,
        name: &str,
    ) -> io::Result<()> {
        Pen { of: self, out, tracks, event }.mark(name)
    }

    pub fn counter<W: Write>(
        &mut self,
        out: &mut Packets<W>,
        tracks: &mut u64,
        name: &str,
        at: u64,
        value: i64,
    ) -> io::Result<()> {
        let Some(track) = self.row(out, tracks, Row::Counter(name.into()))? else { return Ok(()) };
        let event = TrackEvent {
            event_type: Some(event_type::COUNTER),
            track: Some(track),
            value: Some(value),
            ..TrackEvent::default()
        };
        self.sequence.event(out, at, ("", None), event)
    }

    /// Returns the track of a row, made if there is none; `None`, counted, if there are too many.
    fn row<W: Write>(
        &mut self,
        out: &mut Packets<W>,
        tracks: &mut u64,
        row: Row,
    ) -> io::Result<Option<u64>> {
        if let Some(&track) = self.rows.get(&row) {
            return Ok(Some(track));
        }
        if self.rows.len() >= ROWS {
            self.ignored += 1;
            return Ok(None);
        }
        let uuid = *tracks;
        *tracks += 1;
        let counter = matches!(row, Row::Counter(_)).then(CounterDescriptor::default);
        let track = TrackDescriptor {
            uuid: Some(uuid),
            name: Some(row.name()),
            parent: Some(self.root),
            counter,
            ..TrackDescriptor::default()
        };
        out.write(&Packet { track: Some(track), ..Packet::default() })?;
        self.rows.insert(row, uuid);
        Ok(Some(uuid))
    }
}

/// One event on its way to the tracks.
struct Pen<'a, W> {
    of: &'a mut Tracks,
    out: &'a mut Packets<W>,
    tracks: &'a mut u64,
    event: &'a Event,
}

impl<W: Write> Pen<'_, W> {
    fn write(
        &mut self,
        row: Row,
        name: Option<&str>,
        event_type: i32,
        event: TrackEvent,
    ) -> io::Result<()> {
        let Some(track) = self.of.row(self.out, self.tracks, row)? else { return Ok(()) };
        let event = TrackEvent { event_type: Some(event_type), track: Some(track), ..event };
        let names = (self.event.layer.name(), name);
        self.of.sequence.event(self.out, self.event.at.0, names, event)
    }

    /// The number of the event's request in the whole trace.
    fn flow(&self) -> Vec<u64> {
        let Event { request, .. } = *self.event;
        let own = match self.of.shares_requests {
            true => 0,
            false => (self.of.index + 1) << 48,
        };
        if request == 0 { Vec::new() } else { vec![request.wrapping_add(own)] }
    }

    fn moment(&mut self, row: Row, has_flow: bool) -> io::Result<()> {
        let flows = if has_flow { self.flow() } else { Vec::new() };
        let event = TrackEvent { flows, ..TrackEvent::default() };
        self.write(row, Some(self.event.kind.name()), event_type::INSTANT, event)
    }

    fn waiting(&mut self, change: i64) -> io::Result<()> {
        self.of.waiting = (self.of.waiting + change).max(0);
        let waiting = self.of.waiting;
        self.of.counter(self.out, self.tracks, "waiting", self.event.at.0, waiting)
    }

    fn queued(&mut self) -> io::Result<()> {
        self.waiting(1)
    }

    fn start(&mut self) -> io::Result<()> {
        let Event { layer, cpu, who, .. } = *self.event;
        let worker = (layer, cpu.0);
        if self.of.running.insert(worker, who).is_some() {
            self.end(worker)?;
        }
        self.waiting(-1)?;
        let event = TrackEvent { correlation: Some(who.into()), ..TrackEvent::default() };
        let name = format!("task {who}");
        self.write(Row::Worker(layer, cpu.0), Some(&name), event_type::BEGIN, event)
    }

    /// A task leaves its worker. The event names the CPU of its queue, which may be another.
    fn leave(&mut self) -> io::Result<()> {
        let Event { layer, cpu, who, .. } = *self.event;
        let here = Some((layer, cpu.0)).filter(|worker| self.of.running.get(worker) == Some(&who));
        let all = || self.of.running.iter().find(|(at, task)| at.0 == layer && **task == who);
        let worker = here.or_else(|| all().map(|(worker, _)| *worker));
        let Some(worker) = worker else { return Ok(()) };
        self.of.running.remove(&worker);
        self.end(worker)
    }

    fn end(&mut self, (layer, cpu): (Layer, u16)) -> io::Result<()> {
        self.write(Row::Worker(layer, cpu), None, event_type::END, TrackEvent::default())
    }

    fn mark(&mut self, name: &str) -> io::Result<()> {
        let Event { layer, who, arg, .. } = *self.event;
        let row = Row::Task(layer, who);
        let open = self.of.spans.get(&(layer, who)).copied().unwrap_or(0);
        let phase = u8::try_from(arg).ok().and_then(MarkPhase::of);
        match phase.unwrap_or(MarkPhase::Moment) {
            MarkPhase::Moment => {
                self.write(row, Some(name), event_type::INSTANT, TrackEvent::default())
            }
            MarkPhase::Begin => {
                if self.of.spans.len() < ROWS || open > 0 {
                    self.of.spans.insert((layer, who), open.saturating_add(1));
                }
                self.write(row, Some(name), event_type::BEGIN, TrackEvent::default())
            }
            // It began before the recording, or before a hole.
            MarkPhase::End if open == 0 => {
                self.of.ignored += 1;
                Ok(())
            }
            MarkPhase::End => {
                self.of.spans.insert((layer, who), open - 1);
                self.write(row, None, event_type::END, TrackEvent::default())
            }
        }
    }

    /// Ends what a task has begun.
    fn end_spans(&mut self, task: u32) -> io::Result<()> {
        let layer = self.event.layer;
        let open = self.of.spans.remove(&(layer, task)).unwrap_or(0);
        let end =
            |_| self.write(Row::Task(layer, task), None, event_type::END, TrackEvent::default());
        (0..open).try_for_each(end)
    }

    fn take(&mut self) -> io::Result<()> {
        let Event { layer, who, request, .. } = *self.event;
        // A connection's next request, if the answer was not seen.
        if let Some(place) = self.of.requests.end(layer, request) {
            self.write(Row::of(place), None, event_type::END, TrackEvent::default())?;
        }
        let Some(place) = self.of.requests.take(request, (layer, who)) else {
            return self.moment(Row::of(Placement { executor: (layer, who), track: 0 }), true);
        };
        let flows = self.flow();
        let event =
            TrackEvent { correlation: flows.first().copied(), flows, ..TrackEvent::default() };
        self.write(Row::of(place), Some("request"), event_type::BEGIN, event)
    }

    fn answer(&mut self) -> io::Result<()> {
        let Event { layer, who, request, kind, .. } = *self.event;
        let event = TrackEvent { ended_flows: self.flow(), ..TrackEvent::default() };
        match self.of.requests.end(layer, request) {
            Some(place) => self.write(Row::of(place), None, event_type::END, event),
            None => {
                let place = Placement { executor: (layer, who), track: 0 };
                self.write(Row::of(place), Some(kind.name()), event_type::INSTANT, event)
            }
        }
    }

    /// Events of a worker are missing: what follows begins anew.
    fn lost(&mut self) -> io::Result<()> {
        let Event { layer, cpu, arg, .. } = *self.event;
        self.of.waiting = 0;
        self.of.sequence.lost();
        let is_stale = |at: &(Layer, u16)| at.0 == layer && (cpu == ANY || at.1 == cpu.0);
        let stale: Vec<_> = self.of.running.keys().copied().filter(is_stale).collect();
        for worker in &stale {
            self.of.running.remove(worker);
            self.end(*worker)?;
        }
        // A task's marks may be in any ring.
        let tasks: Vec<_> =
            self.of.spans.keys().filter(|of| of.0 == layer).map(|of| of.1).collect();
        tasks.into_iter().try_for_each(|task| self.end_spans(task))?;
        let name = match arg {
            0 => "events are missing".into(),
            n => format!("{n} events are missing"),
        };
        let at = if cpu == ANY { stale.first().map_or(0, |worker| worker.1) } else { cpu.0 };
        self.write(Row::Worker(layer, at), Some(&name), event_type::INSTANT, TrackEvent::default())
    }
}
