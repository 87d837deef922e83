//! The rings of Heddle runtimes.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use heddle_core::{CpuId, Event, EventKind, Layer, Ns};
use heddle_export::perfetto::{ANY, Source, SourceId};
use heddle_sys::clock;
use heddle_telemetry::Reader;

use super::Output;
use crate::exit;
use crate::sources::service_name;

/// For how long a process records events from a request on, and how often that is renewed.
const ASKED: Ns = Ns::from_secs(2);
const RENEWED: Duration = Duration::from_millis(500);

/// A page with its source in the trace.
struct Recorded {
    reader: Reader,
    source: Option<SourceId>,
    /// The layer and time of the last event of each ring: where a hole is shown.
    last: Vec<(Layer, Ns)>,
    /// Events that came after the beginning of the last reading: of other rings, earlier ones may be missing.
    later: Vec<Event>,
    /// The names of marks, as far as they are known.
    names: HashMap<u32, String>,
}

/// The pages whose rings are read.
pub struct PageEvents {
    pages: Vec<Recorded>,
    asked: Instant,
}

impl PageEvents {
    /// Opens the pages with rings of the processes, or of all if none is named; and says which cannot be read.
    pub fn open(pids: &[u32]) -> (PageEvents, Vec<String>) {
        let (mut readers, mut without) = (Vec::new(), Vec::new());
        for &pid in pids {
            match heddle_telemetry::find(pid).map(with_rings) {
                Ok(found) if found.is_empty() => {
                    without
                        .push(format!("Process {pid} has no Heddle runtime that shows its tasks."));
                }
                Ok(found) => readers.extend(found),
                Err(error) => without.push(format!("Process {pid}: {error}.")),
            }
        }
        if pids.is_empty() {
            readers = with_rings(heddle_telemetry::scan());
        }
        let pages = readers.into_iter().map(Recorded::new).collect();
        (PageEvents { pages, asked: Instant::now() }, without)
    }

    /// Whether there is no page.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The number of pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Writes what is known before the first event, and turns recording on.
    pub fn begin(&mut self, trace: &mut Output) -> io::Result<()> {
        for page in &mut self.pages {
            let process = page.reader.process();
            let short = process.map(heddle_sys::processes::Process::name).unwrap_or_default();
            let process = process.map(|process| process.pid);
            let name = service_name(&short, "");
            page.source =
                Some(trace.source(&Source { name: &name, process, shares_requests: false })?);
        }
        for why in self.ask() {
            exit::note(&format!("A program records nothing: {why}."));
        }
        Ok(())
    }

    /// Has the processes record. Returns why some do not: there is no memory for their rings.
    fn ask(&mut self) -> Vec<io::Error> {
        self.asked = Instant::now();
        self.pages.iter().filter_map(|page| page.reader.record(ASKED).err()).collect()
    }

    /// Writes the events that are complete.
    pub fn read(&mut self, trace: &mut Output) -> io::Result<()> {
        if self.asked.elapsed() >= RENEWED {
            // What fails now failed at the beginning, too.
            self.ask();
        }
        let until = clock::now();
        self.pages.iter_mut().try_for_each(|page| page.read(trace, until))
    }

    /// Writes all events.
    pub fn finish(&mut self, trace: &mut Output) -> io::Result<()> {
        self.pages.iter_mut().try_for_each(|page| page.read(trace, Ns::MAX))
    }
}

/// Event queues, for instance, show counters only.
fn with_rings(found: Vec<Reader>) -> Vec<Reader> {
    found.into_iter().filter(Reader::has_rings).collect()
}

impl Recorded {
    fn new(reader: Reader) -> Recorded {
        let (source, last, later) = (None, Vec::new(), Vec::new());
        Recorded { reader, source, last, later, names: HashMap::new() }
    }

    /// Writes the events up to `until`, in the order of time over all rings: a task begins on one worker and goes on
    /// on another.
    fn read(&mut self, trace: &mut Output, until: Ns) -> io::Result<()> {
        let Some(source) = self.source else { return Ok(()) };
        let mut events = std::mem::take(&mut self.later);
        self.take(&mut events);
        events.sort_by_key(|event| event.at);
        let complete = events.partition_point(|event| event.at <= until);
        self.later = events.split_off(complete);
        events.iter().try_for_each(|event| match self.name(event) {
            Some(name) => trace.mark(source, event, name),
            None => trace.event(source, event),
        })
    }

    /// Takes the events of all rings, with holes where some are missing.
    fn take(&mut self, events: &mut Vec<Event>) {
        let rings = self.reader.rings();
        let count = rings.len();
        for ring in rings {
            let batch = self.reader.events(ring.value);
            let at = ring.value;
            if self.last.len() <= at {
                self.last.resize(at + 1, (Layer::Runtime, Ns::ZERO));
            }
            if batch.lost > 0 {
                let first = batch.events.first();
                let (layer, time) = first.map_or(self.last[at], |event| (event.layer, event.at));
                // One ring has the events of all workers; several have those of a queue each.
                let own = || CpuId(u16::try_from(at).unwrap_or(u16::MAX));
                let cpu = if count == 1 { ANY } else { own() };
                let hole = Event::task(time, cpu, 0, EventKind::Lost).of(layer);
                let arg = u32::try_from(batch.lost).unwrap_or(u32::MAX);
                events.push(Event { arg, ..hole });
            }
            if let Some(last) = batch.events.last() {
                self.last[at] = (last.layer, last.at);
            }
            events.extend(batch.events);
        }
    }

    /// Returns the name of a mark; `None` for other events, and marks without a name.
    fn name(&mut self, event: &Event) -> Option<&str> {
        if event.kind != EventKind::Mark {
            return None;
        }
        if !self.names.contains_key(&event.by) {
            self.names.insert(event.by, self.reader.mark_name(event.by)?);
        }
        self.names.get(&event.by).map(String::as_str)
    }
}
