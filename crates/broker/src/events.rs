//! The last notable things that happened, for those who ask.

use std::collections::VecDeque;

use heddle_core::Ns;

use crate::report::EventReport;

/// How many are kept.
const KEPT: usize = 50;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Joined,
    Left,
    Died,
    Demoted,
    Removed,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Joined => "joined",
            Kind::Left => "left",
            Kind::Died => "died",
            Kind::Demoted => "demoted",
            Kind::Removed => "removed",
        }
    }
}

#[derive(Debug)]
struct Event {
    at: Ns,
    kind: Kind,
    name: String,
    pid: u32,
    why: String,
}

/// The events.
#[derive(Debug, Default)]
pub struct Events(VecDeque<Event>);

impl Events {
    /// Notes that something happened to an application, and prints it if the broker did it.
    pub fn note(&mut self, at: Ns, kind: Kind, (name, pid): (&str, u32), why: &str) {
        if matches!(kind, Kind::Demoted | Kind::Removed) {
            let line = format!("heddle: share: {name} (process {pid}) {}: {why}\n", kind.name());
            // It is lost if there is no reader.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Event { at, kind, name: name.into(), pid, why: why.into() });
    }

    /// Returns them, the last one last.
    pub fn report(&self, now: Ns) -> Vec<EventReport> {
        let report = |event: &Event| EventReport {
            ms_ago: (now - event.at).0 / 1_000_000,
            event: event.kind.name().into(),
            name: event.name.clone(),
            pid: event.pid,
            why: event.why.clone(),
        };
        self.0.iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept() {
        let mut events = Events::default();
        for at in 0..60 {
            events.note(Ns::from_ms(at), Kind::Joined, ("x", at as u32), "");
        }
        let report = events.report(Ns::from_ms(60));
        assert_eq!((report.len(), report[0].pid, report[0].ms_ago), (50, 10, 50));
        assert_eq!(report[49].event, "joined");
    }
}
