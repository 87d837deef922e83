//! The kernel's switches.

use std::io;

use heddle_core::{CpuId, Event, EventKind, Layer, Ns};
use heddle_export::perfetto::{Source, SourceId};
use heddle_observe::{Switch, SwitchOptions, Switches};
use heddle_sys::clock;

use super::Output;
use super::names;

/// The bit that says that a thread could have run on.
const PREEMPTED: u32 = 1 << 31;

/// The rings of all CPUs.
pub struct KernelEvents {
    switches: Switches,
    source: Option<SourceId>,
    /// Events that came after the beginning of the last reading: of other CPUs, earlier ones may be missing.
    later: Vec<Switch>,
    /// Events that each CPU had lost.
    lost: Vec<u64>,
}

impl KernelEvents {
    /// Loads the program, or says why not.
    pub fn start() -> Result<KernelEvents, String> {
        let options = SwitchOptions { events: true, ..SwitchOptions::default() };
        let switches = Switches::start(options).map_err(|error| error.to_string())?;
        let lost = switches.lost_events();
        Ok(KernelEvents { switches, source: None, later: Vec::new(), lost })
    }

    /// Writes what is known before the first event.
    pub fn begin(&mut self, trace: &mut Output) -> io::Result<()> {
        trace.kernel(&rustix::system::uname().release().to_string_lossy())?;
        self.source = Some(trace.source(&Source { name: "kernel", ..Source::default() })?);
        names::all(trace)
    }

    /// Writes the events that are complete.
    pub fn read(&mut self, trace: &mut Output) -> io::Result<()> {
        let until = clock::now();
        self.take(trace, until)
    }

    /// Writes all events.
    pub fn finish(&mut self, trace: &mut Output) -> io::Result<()> {
        self.take(trace, Ns::MAX)
    }

    /// Writes the events up to `until`, in the order of time over all CPUs: a thread sleeps on one and runs on another.
    fn take(&mut self, trace: &mut Output, until: Ns) -> io::Result<()> {
        let Some(source) = self.source else { return Ok(()) };
        let mut events = std::mem::take(&mut self.later);
        self.switches.take_events(|event| events.push(event));
        events.sort_by_key(|event| event.at);
        let complete = events.partition_point(|event| event.at <= until);
        self.later = events.split_off(complete);
        for event in &events {
            names::name(trace, event.to)?;
            trace.event(source, &of_kernel(event))?;
        }
        let at = events.last().map_or(until, |event| event.at);
        self.say_lost(trace, source, at)
    }

    fn say_lost(&mut self, trace: &mut Output, source: SourceId, at: Ns) -> io::Result<()> {
        let now = self.switches.lost_events();
        for (cpu, (now, before)) in now.iter().zip(&self.lost).enumerate() {
            let lost = now.saturating_sub(*before);
            if lost > 0 {
                let cpu = CpuId(u16::try_from(cpu).unwrap_or(u16::MAX));
                let event = Event::task(at, cpu, 0, EventKind::Lost).of(Layer::Kernel);
                let arg = u32::try_from(lost).unwrap_or(u32::MAX);
                trace.event(source, &Event { arg, ..event })?;
            }
        }
        self.lost = now;
        Ok(())
    }
}

/// Returns a switch as an event of the common form.
fn of_kernel(switch: &Switch) -> Event {
    let start = Event::task(switch.at, CpuId(switch.cpu), switch.to, EventKind::Start);
    let preempted = if switch.preempted { PREEMPTED } else { 0 };
    let arg = switch.state | preempted;
    Event { by: switch.from, request: switch.waited.0, arg, layer: Layer::Kernel, ..start }
}
