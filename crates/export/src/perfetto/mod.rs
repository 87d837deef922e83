//! Traces that [Perfetto](https://ui.perfetto.dev) opens.
//!
//! The kernel's switches become its scheduling view: a row for each CPU, states of threads, and the tables of its SQL.
//! Everything else becomes slices on tracks: tasks on the workers or CPUs that run them, requests on their executors,
//! with arrows from arrival over assignment to answer.
//!
//! Times in the trace are `CLOCK_MONOTONIC`, as in the events.
//!
//! ```
//! use heddle_core::{CpuId, Event, EventKind, Layer, Ns};
//! use heddle_export::perfetto::{Clocks, Source, Trace};
//!
//! let mut trace = Trace::new(Vec::new(), Clocks::SIMULATED)?;
//! let source = trace.source(&Source { name: "two-queue", ..Source::default() })?;
//! let start = Event::task(Ns(1_000), CpuId(0), 7, EventKind::Start).of(Layer::Sim);
//! trace.event(source, &start)?;
//! trace.event(source, &Event { at: Ns(3_000), kind: EventKind::Exit, ..start })?;
//! let (file, summary) = trace.finish()?;
//! assert_eq!((summary.events, summary.bytes), (2, file.len() as u64));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::BTreeSet;
use std::io::{self, Write};

use heddle_core::{Event, EventKind, Layer};
use rustix::time::{ClockId, clock_gettime};

mod out;
#[doc(hidden)]
#[allow(missing_docs, reason = "the fields have the names of the official messages, or say more")]
pub mod proto;
mod requests;
mod sched;
mod source;

use out::Packets;
use proto::{
    Clock, ClockSnapshot, Packet, Process, ProcessDescriptor, ProcessTree, SystemInfo, Thread,
    ThreadDescriptor, TrackDescriptor, Utsname, clock,
};
use sched::Sched;
pub use source::ANY;
use source::Tracks;

/// Tracks are numbered from here: 0 is Perfetto's own.
const FIRST_TRACK: u64 = 1;

/// One moment by two clocks of the machine, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`, by which events are timed.
    pub monotonic: u64,
    /// `CLOCK_BOOTTIME`, which goes on while the machine is suspended.
    pub boottime: u64,
}

impl Clocks {
    /// The clocks of a simulation: both begin at 0.
    pub const SIMULATED: Clocks = Clocks { monotonic: 0, boottime: 0 };

    /// Reads the machine's clocks: of several tries, the one that took the least time. The moments differ by less than
    /// the time of a system call.
    #[must_use]
    pub fn now() -> Clocks {
        let read = |clock| {
            let time = clock_gettime(clock);
            time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
        };
        let look = || {
            let before = read(ClockId::Monotonic);
            let boottime = read(ClockId::Boottime);
            let after = read(ClockId::Monotonic);
            (after - before, Clocks { monotonic: before.midpoint(after), boottime })
        };
        let (mut best, mut clocks) = look();
        for (took, look) in (0..9).map(|_| look()) {
            if took < best {
                (best, clocks) = (took, look);
            }
        }
        clocks
    }

    /// Converts a time.
    fn boottime(self, monotonic: u64) -> u64 {
        monotonic.wrapping_add(self.boottime.wrapping_sub(self.monotonic))
    }

    /// Returns both clocks at a time.
    fn at(self, monotonic: u64) -> [Clock; 2] {
        let boottime = self.boottime(monotonic);
        [(clock::MONOTONIC, monotonic), (clock::BOOTTIME, boottime)].map(|(id, timestamp)| Clock {
            id: Some(id),
            timestamp: Some(timestamp),
            is_incremental: None,
        })
    }
}

/// Where events come from: a process with a Heddle runtime, a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// Its name, as its group of tracks is called.
    pub name: &'a str,
    /// The process, if it is one.
    pub process: Option<u32>,
    /// Whether its requests are numbered by the kernel, as steering's are: the same number elsewhere is the same
    /// request.
    pub shares_requests: bool,
}

/// A [`Source`] of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceId(usize);

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events that are in the trace.
    pub events: u64,
    /// Events of which the trace has no form.
    pub ignored: u64,
    /// Events that were missing, as far as their number was known.
    pub lost: u64,
    /// The size of the trace.
    pub bytes: u64,
}

/// A trace that is being written to `W`, which should have a buffer.
pub struct Trace<W> {
    out: Packets<W>,
    clocks: Clocks,
    sched: Sched,
    sources: Vec<Tracks>,
    processes: BTreeSet<u32>,
    tracks: u64,
    summary: Summary,
}

impl<W: Write> Trace<W> {
    /// Begins a trace. `clocks` are those of the machine of the events, or [`Clocks::SIMULATED`].
    ///
    /// # Errors
    /// As writing to `out`; so of all functions here.
    pub fn new(out: W, clocks: Clocks) -> io::Result<Trace<W>> {
        let mut out = Packets::new(out);
        let clock_snapshot = ClockSnapshot {
            clocks: clocks.at(clocks.monotonic).into(),
            primary: Some(clock::MONOTONIC),
        };
        out.write(&Packet { clock_snapshot: Some(clock_snapshot), ..Packet::default() })?;
        Ok(Trace {
            out,
            clocks,
            sched: Sched::new(clocks),
            sources: Vec::new(),
            processes: BTreeSet::new(),
            tracks: FIRST_TRACK,
            summary: Summary::default(),
        })
    }

    /// States the kernel's release (`6.12.1`), by which Perfetto reads the states of threads. Before events of the
    /// kernel.
    ///
    /// # Errors
    /// As [`Trace::new`].
    pub fn kernel(&mut self, release: &str) -> io::Result<()> {
        let utsname = Utsname { sysname: Some("Linux".into()), release: Some(release.into()) };
        let system_info = Some(SystemInfo { utsname: Some(utsname) });
        self.out.write(&Packet { system_info, ..Packet::default() })
    }

    /// Names a process.
    ///
    /// # Errors
    /// As [`Trace::new`].
    pub fn process(&mut self, pid: u32, name: &str) -> io::Result<()> {
        self.processes.insert(pid);
        let process = Process { pid: Some(pid.cast_signed()), cmdline: vec![name.into()] };
        let process_tree = Some(ProcessTree { processes: vec![process], threads: Vec::new() });
        self.out.write(&Packet { process_tree, ..Packet::default() })
    }

    /// Names a thread of a process; `priority` is the kernel's (120 is an ordinary one). Before its events, which have
    /// the name `<...>` otherwise.
    ///
    /// # Errors
    /// As [`Trace::new`].
    pub fn thread(
        &mut self,
        process: u32,
        tid: u32,
        name: &str,
        priority: Option<i32>,
    ) -> io::Result<()> {
        self.sched.name(tid, name, priority);
        let (tid, tgid) = (Some(tid.cast_signed()), Some(process.cast_signed()));
        let thread = Thread { tid, name: Some(name.into()), tgid };
        let process_tree = Some(ProcessTree { processes: Vec::new(), threads: vec![thread] });
        self.out.write(&Packet { process_tree, ..Packet::default() })
    }

    /// Whether a thread has a name.
    #[must_use]
    pub fn is_named(&self, tid: u32) -> bool {
        self.sched.is_named(tid)
    }

    /// Adds a source with tracks of its own.
    ///
    /// # Errors
    /// As [`Trace::new`].
    pub fn source(&mut self, source: &Source<'_>) -> io::Result<SourceId> {
        let id = SourceId(self.sources.len());
        let track = self.new_track();
        let process = source.process.map(|pid| ProcessDescriptor {
            pid: Some(pid.cast_signed()),
            name: Some(source.name.into()),
        });
        let track_of = TrackDescriptor {
            uuid: Some(track),
            name: Some(source.name.into()),
            process,
            ..TrackDescriptor::default()
        };
        self.out.write(&Packet { track: Some(track_of), ..Packet::default() })?;
        self.sources.push(Tracks::new(id.0, track, source.shares_requests, self.clocks));
        Ok(id)
    }

    /// Gives a thread of a source's process a track there, under its name.
    ///
    /// # Errors
    /// As [`Trace::new`].
    pub fn worker_thread(&mut self, process: u32, tid: u32, name: &str) -> io::Result<()> {
        let thread = ThreadDescriptor {
            pid: Some(process.cast_signed()),
            tid: Some(tid.cast_signed()),
            name: Some(name.into()),
        };
        let uuid = Some(self.new_track());
        let track = TrackDescriptor { uuid, thread: Some(thread), ..TrackDescriptor::default() };
        self.out.write(&Packet { track: Some(track), ..Packet::default() })
    }

    fn new_track(&mut self) -> u64 {
        self.tracks += 1;
        self.tracks - 1
    }

    /// Adds an event. Events of one CPU or worker come in the order of their times. One that says that events are
    /// missing ends what its CPU ran, or what all ran if that is [`ANY`].
    ///
    /// # Errors
    /// As [`Trace::new`].
    ///
    /// # Panics
    /// If `source` is of another trace.
    pub fn event(&mut self, source: SourceId, event: &Event) -> io::Result<()> {
        if event.kind == EventKind::Lost {
            self.summary.lost = self.summary.lost.saturating_add(event.arg.into());
        }
        self.summary.events += 1;
        if event.layer == Layer::Kernel && is_of_threads(event.kind) {
            return self.sched.event(&mut self.out, event);
        }
        self.sources[source.0].event(&mut self.out, &mut self.tracks, event)
    }

    /// Adds a mark of a task, under its name, to the task's own track. Those of one task come in the order of their
    /// times.
    ///
    /// # Errors
    /// As [`Trace::new`].
    ///
    /// # Panics
    /// If `source` is of another trace.
    pub fn mark(&mut self, source: SourceId, event: &Event, name: &str) -> io::Result<()> {
        self.summary.events += 1;
        self.sources[source.0].mark(&mut self.out, &mut self.tracks, event, name)
    }

    /// Sets a counter of a source to a value.
    ///
    /// # Errors
    /// As [`Trace::new`].
    ///
    /// # Panics
    /// If `source` is of another trace.
    pub fn counter(
        &mut self,
        source: SourceId,
        name: &str,
        at: heddle_core::Ns,
        value: i64,
    ) -> io::Result<()> {
        self.sources[source.0].counter(&mut self.out, &mut self.tracks, name, at.0, value)
    }

    /// Returns what was written so far; the last packets are not counted in its size.
    #[must_use]
    pub fn so_far(&self) -> Summary {
        let ignored =
            self.sources.iter().map(|source| source.ignored).sum::<u64>() + self.sched.ignored;
        let events = self.summary.events.saturating_sub(ignored);
        Summary { bytes: self.out.bytes, ignored, events, ..self.summary }
    }

    /// Writes what is left, and returns the file with a summary.
    ///
    /// # Errors
    /// As [`Trace::new`].
    pub fn finish(mut self) -> io::Result<(W, Summary)> {
        self.sched.flush_all(&mut self.out)?;
        let summary = self.so_far();
        let (file, bytes) = self.out.finish()?;
        Ok((file, Summary { bytes, ..summary }))
    }
}

/// Whether a kind of events of the kernel belongs to its scheduling view.
fn is_of_threads(kind: EventKind) -> bool {
    kind < EventKind::Arrive || kind == EventKind::Lost
}
