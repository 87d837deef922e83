//! The rings of Heddle runtimes.

use std::io;
use std::time::{Duration, Instant};

use heddle_core::{CpuId, Event, EventKind, Layer, Ns};
use heddle_export::perfetto::{ANY, Source, SourceId};
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
}

/// The pages whose rings are read.
pub struct PageEvents {
    pages: Vec<Recorded>,
    asked: Instant,
}

impl PageEvents {
    /// Opens the pages of the processes, or of all if none is named; and says which cannot be read.
    pub fn open(pids: &[u32]) -> (PageEvents, Vec<String>) {
        let (mut readers, mut without) = (Vec::new(), Vec::new());
        for &pid in pids {
            match heddle_telemetry::find(pid) {
                Ok(found) if found.is_empty() => {
                    without
                        .push(format!("Process {pid} has no Heddle runtime that shows its tasks."));
                }
                Ok(found) => readers.extend(found),
                Err(error) => without.push(format!("Process {pid}: {error}.")),
            }
        }
        if pids.is_empty() {
            readers = heddle_telemetry::scan();
        }
        let recorded = |reader| Recorded { reader, source: None, last: Vec::new() };
        let pages = readers.into_iter().map(recorded).collect();
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

    /// Writes the events that came.
    pub fn read(&mut self, trace: &mut Output) -> io::Result<()> {
        if self.asked.elapsed() >= RENEWED {
            // What fails now failed at the beginning, too.
            self.ask();
        }
        self.pages.iter_mut().try_for_each(|page| page.read(trace))
    }
}

impl Recorded {
    fn read(&mut self, trace: &mut Output) -> io::Result<()> {
        let Some(source) = self.source else { return Ok(()) };
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
                trace.event(source, &Event { arg, ..hole })?;
            }
            for event in &batch.events {
                trace.event(source, event)?;
                self.last[at] = (event.layer, event.at);
            }
        }
        Ok(())
    }
}
