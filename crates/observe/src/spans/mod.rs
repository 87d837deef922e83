//! The span programs: loaded, attached, switched on in windows, drained.

mod layout;
mod reasons;
#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::Relaxed;

use heddle_bpf::{Link, Map, MapView, Object, OpenObject, Ring};

pub(crate) use layout::WAYS;
use layout::{OPEN, REQUEST, STATE, control};

use crate::{ObserveError, Protocol, Span, features, objects};

const PROGRAMS: [&str; 6] =
    ["spans_recv", "spans_send", "spans_ready", "spans_state", "spans_switch", "spans_waking"];

/// Finds requests at the sockets of watched ports, while it is on.
#[derive(Debug)]
pub(crate) struct Spans {
    object: Object,
    control: MapView,
    ports: MapView,
    processes: Map,
    socket_keys: MapView,
    sockets: MapView,
    thread_keys: MapView,
    queues: MapView,
    ring: Ring,
    _links: Vec<Link>,
}

/// What the programs counted since they were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpanCounts {
    /// Requests that began.
    pub(crate) requests: u64,
    /// Requests for which the ring had no room.
    pub(crate) lost: u64,
    /// Sockets and threads for which the tables had no room.
    pub(crate) refused: u64,
    /// Requests that were never answered.
    pub(crate) unanswered: u64,
    /// Requests whose arrival was not seen.
    pub(crate) unknown: u64,
}

impl Spans {
    /// Loads and attaches the programs, with a ring of `ring_bytes` (a power of two). They are off.
    ///
    /// # Errors
    /// Missing privileges or tracepoints, or the kernel's reason.
    pub(crate) fn start(ring_bytes: u32) -> Result<Spans, ObserveError> {
        features::require(true)?;
        let mut open = OpenObject::read("spans", objects::SPANS)?;
        open.set_entries("ring", ring_bytes)?;
        let object = open.load()?;
        let view = |name: &str| MapView::new(&object.map(name)?);
        let spans = Spans {
            control: view("control")?,
            ports: view("ports")?,
            processes: object.map("processes")?,
            socket_keys: view("socket_keys")?,
            sockets: view("sockets")?,
            thread_keys: view("thread_keys")?,
            queues: view("queues")?,
            ring: Ring::new(object.map("ring")?)?,
            _links: PROGRAMS.iter().map(|name| object.attach(name)).collect::<Result<_, _>>()?,
            object,
        };
        let reasons = MapView::new(&spans.object.map("reasons")?)?;
        for (word, eight) in reasons::reasons().chunks_exact(8).enumerate() {
            let value = u64::from_le_bytes(eight.try_into().unwrap_or_default());
            reasons.word(0, word).store(value.to_le(), Relaxed);
        }
        Ok(spans)
    }

    /// Watches a port.
    pub(crate) fn watch_port(&self, port: u16, protocol: Protocol) {
        let bit: u64 = match protocol {
            Protocol::Tcp => 1,
            Protocol::Udp => 2,
        };
        let (at, byte) = (usize::from(port) / 64, usize::from(port) % 64);
        self.ports.word(at, byte / 8).fetch_or((bit << (8 * (byte % 8))).to_le(), Relaxed);
    }

    /// Lets requests count that `process` reads, and then only those of processes named so.
    ///
    /// # Errors
    /// The kernel's: too many processes.
    pub(crate) fn restrict_to(&self, process: u32) -> Result<(), ObserveError> {
        self.processes.update(&process.to_ne_bytes(), &1_u32.to_ne_bytes())?;
        self.control.word(0, control::RESTRICTED).store(1, Relaxed);
        Ok(())
    }

    /// Begins a window, with empty tables.
    pub(crate) fn switch_on(&self) {
        self.clear();
        self.control.word(0, control::ON).store(1, Relaxed);
    }

    /// Ends the window. Programs that run at this moment go on for a microsecond: [`Spans::drain_tables`] comes later.
    pub(crate) fn switch_off(&self) {
        self.control.word(0, control::ON).store(0, Relaxed);
    }

    /// Takes the requests that were reported.
    pub(crate) fn drain_ring(&self, spans: &mut Vec<Span>) {
        while let Some(words) = self.ring.next::<REQUEST>() {
            spans.push(layout::span(&words));
        }
    }

    /// Takes the requests that were answered in the window that ended and not reported yet; each connection's last.
    /// Returns how many were not answered.
    pub(crate) fn drain_tables(&self, spans: &mut Vec<Span>) -> u64 {
        let mut unanswered = 0;
        for entry in 0..self.sockets.len() {
            let key = self.socket_keys.word(entry / WAYS, entry % WAYS).load(Relaxed);
            if key == 0 || self.sockets.word(entry, STATE).load(Relaxed) != OPEN {
                continue;
            }
            let words = std::array::from_fn(|at| self.sockets.word(entry, at).load(Relaxed));
            let span = layout::span(&words);
            match span.answered.0 {
                0 => unanswered += 1,
                _ => spans.push(span),
            }
        }
        self.clear();
        unanswered
    }

    fn clear(&self) {
        for keys in [&self.socket_keys, &self.thread_keys] {
            for set in 0..keys.len() {
                (0..WAYS).for_each(|way| keys.word(set, way).store(0, Relaxed));
            }
        }
        // The number of queues in use.
        self.queues.word(0, 0).store(0, Relaxed);
    }

    /// Returns what was counted so far.
    pub(crate) fn counts(&self) -> SpanCounts {
        let count = |word| self.control.word(0, word).load(Relaxed);
        SpanCounts {
            requests: count(control::REQUESTS),
            lost: count(control::LOST),
            refused: count(control::REFUSED),
            unanswered: count(control::UNANSWERED),
            unknown: count(control::UNKNOWN),
        }
    }

    /// Returns the run time of the programs while it was counted, nanoseconds: of that at switches, and of the rest.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn run_time(&self) -> Result<(u64, u64), ObserveError> {
        let (mut at_switches, mut rest) = (0, 0);
        for name in PROGRAMS {
            let time = self.object.program(name)?.info()?.run_time;
            *if name == "spans_switch" { &mut at_switches } else { &mut rest } += time;
        }
        Ok((at_switches, rest))
    }
}
