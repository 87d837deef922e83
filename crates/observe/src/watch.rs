//! Watching a service.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use heddle_core::Ns;
use heddle_sys::clock;

use crate::budget::{Budget, CALIBRATION, Step, Work};
use crate::service::{self, Target};
use crate::spans::{SpanCounts, Spans};
use crate::{
    Lost, ObserveError, Recording, Service, Span, SwitchOptions, Switches, Use, Window, host,
};

/// How often [`Watch::poll`] should be called.
pub const POLL: Duration = Duration::from_millis(50);
/// How often processes that came and went are looked for.
const REFRESH: Ns = Ns::from_secs(1);
/// Programs that ran when a window ended have ended after this time.
const SETTLE: Duration = Duration::from_millis(2);
/// Of one CPU, for each CPU of the machine.
const DEFAULT_BUDGET: f64 = 0.01;
/// The group of the service's processes in the program at every switch.
const SERVICE: u8 = 1;

/// How to watch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// What the programs that find requests may cost, as a share of one CPU. Above it, requests are watched in
    /// windows.
    pub budget: f64,
    /// Whether to take a sample of each thread's bursts.
    pub bursts: bool,
    /// Bytes of the ring of requests, a power of two: 170 for each request between two calls of [`Watch::poll`].
    pub ring_bytes: u32,
}

impl Default for Options {
    /// One percent of the machine, with bursts, 4 MiB.
    fn default() -> Options {
        let budget = DEFAULT_BUDGET * f64::from(host::online_cpus());
        Options { budget, bursts: true, ring_bytes: 1 << 22 }
    }
}

/// How far watching is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How long it has lasted.
    pub elapsed: Ns,
    /// Requests found so far.
    pub requests: u64,
    /// Records that were lost so far.
    pub lost: u64,
    /// Whether requests are watched at present: false between two windows.
    pub watching: bool,
}

/// A service that is being watched.
#[derive(Debug)]
pub struct Watch {
    target: Target,
    service: Service,
    restricted: bool,
    spans_programs: Spans,
    switches: Switches,
    budget: Budget,
    /// Held while the kernel counts run time.
    counting: Option<OwnedFd>,
    calibrated_from: (Work, (u64, u64), u64),
    began: Ns,
    window_from: Option<Ns>,
    refreshed: Ns,
    uses_before: Vec<Use>,
    dropped_before: u64,
    throttled_before: Ns,
    spans: Vec<Span>,
    windows: Vec<Window>,
    in_flight: u64,
    living: BTreeSet<u32>,
    gone: BTreeSet<u32>,
    came: BTreeSet<u32>,
}

impl Watch {
    /// Begins to watch.
    ///
    /// # Errors
    /// There is no such process or socket; a privilege or a tracepoint is missing; the kernel refused a program.
    pub fn start(target: &Target, options: &Options) -> Result<Watch, ObserveError> {
        let found = service::find(target)?;
        let spans_programs = Spans::start(options.ring_bytes)?;
        let switches = Switches::start(SwitchOptions {
            threads: true,
            bursts: options.bursts,
            ..SwitchOptions::default()
        })?;
        for socket in &found.service.sockets {
            spans_programs.watch_port(socket.port, socket.protocol);
        }
        let counting = heddle_bpf::count_run_time().ok();
        let (now, dropped_before) = (clock::now(), service::dropped_datagrams(&found.service));
        let throttled_before =
            found.service.processes.first().map_or(Ns::ZERO, |&one| host::throttled(one));
        let mut watch = Watch {
            target: target.clone(),
            service: found.service,
            restricted: found.shares_ports,
            budget: Budget::new(options.budget, now, Work::default()),
            calibrated_from: (Work::default(), spans_programs.run_time()?, switches.run_time()?),
            uses_before: switches.uses(),
            spans_programs,
            switches,
            counting,
            began: now,
            window_from: None,
            refreshed: now,
            dropped_before,
            throttled_before,
            spans: Vec::new(),
            windows: Vec::new(),
            in_flight: 0,
            living: BTreeSet::new(),
            gone: BTreeSet::new(),
            came: BTreeSet::new(),
        };
        for process in watch.service.processes.clone() {
            watch.admit(process)?;
        }
        watch.living = watch.service.processes.iter().copied().collect();
        watch.calibrated_from.0 = watch.work();
        watch.budget = Budget::new(options.budget, now, watch.work());
        watch.open_window();
        Ok(watch)
    }

    /// Watches for `duration`, or until `stop` is set, and calls `on_progress` every [`POLL`].
    ///
    /// # Errors
    /// As for [`Watch::start`].
    pub fn for_duration(
        target: &Target,
        options: &Options,
        duration: Duration,
        stop: &AtomicBool,
        mut on_progress: impl FnMut(Progress),
    ) -> Result<Recording, ObserveError> {
        let mut watch = Watch::start(target, options)?;
        let end = watch.began + Ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2));
        while !stop.load(Ordering::Relaxed) {
            let left = Duration::from_nanos(end.0.saturating_sub(clock::now().0));
            if left.is_zero() {
                break;
            }
            sleep(left.min(POLL));
            watch.poll()?;
            on_progress(watch.progress());
        }
        watch.finish()
    }

    /// Takes what the programs have found, and begins and ends windows. To be called every [`POLL`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn poll(&mut self) -> Result<(), ObserveError> {
        self.spans_programs.drain_ring(&mut self.spans);
        self.switches.collect_bursts();
        let now = clock::now();
        if self.counting.is_some() && now - self.began >= CALIBRATION {
            self.calibrate()?;
        }
        if self.counting.is_none() {
            match self.budget.step(now, self.work()) {
                Step::Continue => {}
                Step::Pause => self.close_window(),
                Step::Resume => self.open_window(),
            }
        }
        if now - self.refreshed >= REFRESH {
            self.refreshed = now;
            self.refresh()?;
        }
        Ok(())
    }

    /// Returns how far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            elapsed: clock::now() - self.began,
            requests: self.spans.len() as u64,
            lost: self.lost_records(&self.spans_programs.counts()),
            watching: self.window_from.is_some(),
        }
    }

    /// Returns the service as it was found.
    #[must_use]
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Ends watching.
    ///
    /// # Errors
    /// The kernel's.
    pub fn finish(mut self) -> Result<Recording, ObserveError> {
        self.poll()?;
        if self.counting.is_some() {
            self.calibrate()?;
        }
        let cost = self.budget.cost(self.work());
        if let Some(&first) = self.service.processes.first() {
            self.service.throttled = host::throttled(first) - self.throttled_before;
        }
        self.close_window();
        self.refresh()?;
        let counts = self.spans_programs.counts();
        let lost = Lost {
            records: self.lost_records(&counts),
            unanswered: counts.unanswered + self.in_flight,
            notes: self.notes(&counts),
        };
        self.switches.collect_bursts();
        let mut bursts = self.switches.bursts();
        let uses = self.switches.uses();
        let threads = host::threads(&self.uses_before, uses, &self.service.processes, &mut bursts);
        self.spans.sort_by_key(|span| (span.arrived, span.received));
        Ok(Recording {
            host: host::describe(),
            service: self.service,
            windows: self.windows,
            spans: self.spans,
            threads,
            lost,
            cost,
        })
    }

    fn work(&self) -> Work {
        let requests = self.spans_programs.counts().requests;
        Work { requests, switches: self.switches.count() }
    }

    /// Ends the time in which the kernel counts run time, and learns the prices from it.
    fn calibrate(&mut self) -> Result<(), ObserveError> {
        let (work, spans, always) = self.calibrated_from;
        let (at_switches, rest) = self.spans_programs.run_time()?;
        let times = (
            at_switches.saturating_sub(spans.0),
            rest.saturating_sub(spans.1),
            self.switches.run_time()?.saturating_sub(always),
        );
        let now = self.work();
        let requests = now.requests - work.requests;
        self.budget.calibrate(times, Work { requests, switches: now.switches - work.switches });
        self.counting = None;
        Ok(())
    }

    fn open_window(&mut self) {
        self.spans_programs.switch_on();
        self.window_from = Some(clock::now());
    }

    fn close_window(&mut self) {
        let Some(from) = self.window_from.take() else { return };
        self.spans_programs.switch_off();
        self.windows.push(Window { from, to: clock::now() });
        sleep(SETTLE);
        self.spans_programs.drain_ring(&mut self.spans);
        self.in_flight += self.spans_programs.drain_tables(&mut self.spans);
    }

    fn admit(&mut self, process: u32) -> Result<(), ObserveError> {
        self.switches.set_group(process, SERVICE);
        if self.restricted {
            self.spans_programs.restrict_to(process)?;
        }
        Ok(())
    }

    /// Follows processes of the service that come and go, and the sockets that they open.
    fn refresh(&mut self) -> Result<(), ObserveError> {
        let before = std::mem::take(&mut self.living);
        let roots: Vec<u32> = before.iter().copied().collect();
        let mut now: BTreeSet<u32> = service::family(&roots).into_iter().collect();
        // After a restart the new processes may be late.
        let changed = now != before || now.is_empty();
        if changed && let Ok(found) = service::find(&self.living_target(&now)) {
            now.extend(found.service.processes.iter().copied());
            let known: BTreeSet<u64> = self.service.sockets.iter().map(|one| one.inode).collect();
            for socket in
                found.service.sockets.into_iter().filter(|one| !known.contains(&one.inode))
            {
                self.spans_programs.watch_port(socket.port, socket.protocol);
                self.service.sockets.push(socket);
            }
        }
        self.gone.extend(before.difference(&now));
        for process in now.difference(&before).copied().collect::<Vec<_>>() {
            self.came.insert(process);
            self.admit(process)?;
            self.service.processes.push(process);
        }
        self.living = now;
        Ok(())
    }

    /// Returns the target among the processes that live: by its ports if all have ended, as after a restart.
    fn living_target(&self, living: &BTreeSet<u32>) -> Target {
        let ports = match self.target.ports.is_empty() && living.is_empty() {
            true => self.service.sockets.iter().map(|socket| socket.port).collect(),
            false => self.target.ports.clone(),
        };
        let processes = match self.target.processes.is_empty() {
            true => Vec::new(),
            false => living.iter().copied().collect(),
        };
        Target { processes, ports }
    }

    fn lost_records(&self, counts: &SpanCounts) -> u64 {
        counts.lost + self.switches.lost().0
    }

    fn notes(&self, counts: &SpanCounts) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                notes.push(format!("{count} {text}"));
            }
        };
        note(counts.refused, "times the tables had no room for a socket or thread");
        note(counts.unknown, "requests had come before they were watched, and are left out");
        note(self.switches.lost().1, "times the table of threads had no room");
        let dropped = service::dropped_datagrams(&self.service).saturating_sub(self.dropped_before);
        note(dropped, "datagrams were dropped: their sockets were full");
        let listed = |processes: &BTreeSet<u32>| {
            processes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
        };
        for (processes, verb) in [(&self.gone, "ended"), (&self.came, "started")] {
            if !processes.is_empty() {
                notes.push(format!("processes {verb} meanwhile: {}", listed(processes)));
            }
        }
        if self.service.sockets.iter().any(|socket| socket.cookie == 0) {
            notes.push(
                "cookies of some sockets are unknown: reading them needs CAP_SYS_PTRACE".into(),
            );
        }
        if !service::ids_are_the_kernels() {
            notes.push(
                "processes and threads have the ids of the initial namespace, not of this one"
                    .into(),
            );
        }
        notes
    }
}
