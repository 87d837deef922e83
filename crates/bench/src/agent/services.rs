//! Two services and batch work on one CPU, each a separate process and session, as on a server: what manual
//! real-time priority does well, and what it cannot do.
//!
//! - `one`: a service with little work (50 us every 2 ms) next to batch work.
//! - `two`: a second service with long requests (3 ms every 10 ms).
//! - `runaway`: the second service never idles.

use super::by_hand::ByHand;
use super::child::{LOAD, LoadReport, LoadSpec, PeriodicSpec};
use super::launch::{Enclave, Launcher, limit, report_in};
use super::running::Running;
use super::system::System;
use crate::suite::{PartResult, Target};
use heddle_agent::guardian::Stage;
use heddle_core::Ns;
use heddle_metrics::{Cell, Collector, Progress, Row, Run, Table, human};
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Most that Heddle's p99 can be, as a multiple of that with `chrt -f 1` (issue 15).
const OVER_FIFO: f64 = 1.1;
/// Least share of the CPU for batch work, whatever services do, in per cent.
const BATCH: f64 = 1.0;
/// Threads of batch work.
const HOGS: usize = 3;
/// Most time that the other processes run before and after the measured service.
const MARGIN: Ns = Ns::from_ms(1500);
/// Longer than a guardian takes to start.
const STARTING: Duration = Duration::from_secs(90);

/// Options of this part.
#[derive(Clone, Debug)]
pub struct ServicesOptions {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// The CPU for everything.
    pub cpu: u32,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each measurement.
    pub duration: Ns,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    One,
    Two,
    Runaway,
}

impl Case {
    const ALL: [Case; 3] = [Case::One, Case::Two, Case::Runaway];

    fn name(self) -> &'static str {
        match self {
            Case::One => "one",
            Case::Two => "two",
            Case::Runaway => "runaway",
        }
    }

    /// Behaviour of the second service.
    fn other(self) -> Option<PeriodicSpec> {
        let of = |period: u64, work: u64| PeriodicSpec {
            period_ns: Ns::from_ms(period).0,
            work_ns: Ns::from_ms(work).0,
            ..PeriodicSpec::default()
        };
        match self {
            Case::One => None,
            Case::Two => Some(of(10, 3)),
            Case::Runaway => Some(of(2, 4)),
        }
    }
}

impl ServicesOptions {
    /// All systems, in this order, on `cpu`.
    #[must_use]
    pub fn new(cpu: u32, rounds: u32, duration: Ns) -> ServicesOptions {
        let systems = vec![
            System::Default,
            System::Nice,
            System::Fifo,
            System::Autogroup,
            System::Cgroup,
            System::fair(),
        ];
        ServicesOptions { systems, cpu, rounds, duration }
    }

    pub(super) fn steps(&self) -> u64 {
        u64::from(self.rounds) * self.systems.len() as u64 * Case::ALL.len() as u64
    }
}

/// The result of one case.
struct Measured {
    service: LoadReport,
    other: Option<LoadReport>,
    batch: LoadReport,
}

/// Measures in interleaved rounds. A system that cannot run gets an invalid row with the reason.
///
/// # Errors
/// The default scheduler's load failed.
pub(super) fn run(
    options: &ServicesOptions,
    launcher: &Launcher,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let mut collect = Collector::new();
    for round in 0..options.rounds {
        for case in Case::ALL {
            let mut fifo = None;
            for system in &options.systems {
                if stop.load(Ordering::Relaxed) {
                    return Ok(found(options, collect.into_rows()));
                }
                progress.step(&format!("services, round {}: {}, {system}", round + 1, case.name()));
                match measure(options, launcher, system, case, stop) {
                    Ok(measured) => {
                        progress.line(&line(system, &measured));
                        let p99 = add(&mut collect, system, case, &measured, fifo);
                        if system == &System::Fifo {
                            fifo = p99;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if system == &System::Default => return Err(error),
                    Err(error) => {
                        progress.line(&format!("  {system}: {error}"));
                        let run = Run::invalid(f64::NAN, error.to_string());
                        collect.add(&system.to_string(), case.name(), "p99_ns", "ns", run);
                    }
                }
            }
        }
    }
    Ok(found(options, collect.into_rows()))
}

fn measure(
    options: &ServicesOptions,
    launcher: &Launcher,
    system: &System,
    case: Case,
    stop: &AtomicBool,
) -> io::Result<Measured> {
    let place = ServiceHost::make(options, launcher, system, stop)?;
    let margin = MARGIN.min(options.duration / 2);
    let around = options.duration + margin * 2;
    let batch = LoadSpec { hogs: HOGS, warmup_ns: margin.0, ..spec(options, options.duration) };
    let batch = place.start(launcher, &batch, false)?;
    let other = case.other().map(|it| LoadSpec { periodic: Some(it), ..spec(options, around) });
    let other = other.map(|spec| place.start(launcher, &spec, true)).transpose()?;
    std::thread::sleep(Duration::from_nanos(margin.0));
    let short = PeriodicSpec {
        period_ns: Ns::from_ms(2).0,
        work_ns: Ns::from_us(50).0,
        ..PeriodicSpec::default()
    };
    let service = LoadSpec { periodic: Some(short), ..spec(options, options.duration) };
    let service = place.start(launcher, &service, true)?;
    let longest = limit(&spec(options, around));
    let report = |running: Running| report_in(&running.finish(longest, stop)?);
    Ok(Measured {
        service: report(service)?,
        other: other.map(report).transpose()?,
        batch: report(batch)?,
    })
}

fn spec(options: &ServicesOptions, duration: Ns) -> LoadSpec {
    LoadSpec { cpus: vec![options.cpu], duration_ns: duration.0, ..LoadSpec::default() }
}

/// The environment in which processes start.
enum ServiceHost {
    ByHand(ByHand),
    /// The enclave that they join.
    Enclave(Enclave, #[allow(dead_code, reason = "ends with this")] Running),
}

impl ServiceHost {
    fn make(
        options: &ServicesOptions,
        launcher: &Launcher,
        system: &System,
        stop: &AtomicBool,
    ) -> io::Result<ServiceHost> {
        let System::Agent { backend, policy, .. } = system else {
            return Ok(ServiceHost::ByHand(ByHand::new(system)?));
        };
        let enclave = Enclave::new(*backend, policy, &[options.cpu]);
        let mut running = Running::start(launcher.under(&enclave, &[]))?;
        let begin = Instant::now();
        let is_there = || {
            enclave
                .find()
                .is_some_and(|it| it.record.stage == Stage::Active && it.record.agent.is_some())
        };
        while !is_there() {
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if running.has_ended() {
                let ended = running.finish(STARTING, stop);
                return Err(ended.err().unwrap_or_else(|| io::Error::other("the agent ended")));
            }
            if begin.elapsed() > STARTING {
                return Err(io::Error::other("the enclave did not begin"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(ServiceHost::Enclave(enclave, running))
    }

    /// Starts a load in a new session.
    fn start(&self, launcher: &Launcher, spec: &LoadSpec, is_service: bool) -> io::Result<Running> {
        let load = launcher.child(LOAD, spec);
        let program = match self {
            ServiceHost::ByHand(by_hand) => by_hand.command(&load, is_service),
            ServiceHost::Enclave(enclave, _) => {
                let mut all = vec![launcher.program.to_string_lossy().into_owned()];
                all.extend(["agent", "join", &enclave.name, "--"].map(String::from));
                // All threads of a batch program are best-effort, including its main thread.
                all.extend((!is_service).then(|| "nice".to_owned()));
                all.extend(load);
                all
            }
        };
        let mut command = Command::new("setsid");
        command.arg("--wait").args(program);
        Running::start(command)
    }
}

/// The p99 of the service, in ns.
fn add(
    collect: &mut Collector,
    system: &System,
    case: Case,
    measured: &Measured,
    fifo: Option<f64>,
) -> Option<f64> {
    let (name, case) = (system.to_string(), case.name());
    let p99 = |report: &LoadReport| {
        let delays = &report.periodic.as_ref()?.delays;
        (!delays.is_empty()).then(|| delays.p99().0 as f64)
    };
    let service = p99(&measured.service);
    let run = service.map_or_else(|| Run::invalid(f64::NAN, "no samples".to_owned()), Run::ok);
    collect.add(&name, case, "p99_ns", "ns", run);
    if let Some(other) = measured.other.as_ref().and_then(p99) {
        collect.add(&name, case, "other_p99_ns", "ns", Run::ok(other));
    }
    collect.add(&name, case, "batch_percent", "%", Run::ok(measured.batch.hogs_percent()));
    if let (Some(service), Some(fifo), true) = (service, fifo, system == &System::fair()) {
        collect.add(&name, case, "p99_over_fifo", "x", Run::ok(service / fifo));
    }
    service
}

fn line(system: &System, measured: &Measured) -> String {
    let p99 = |report: Option<&LoadReport>| {
        let delays = report.and_then(|report| report.periodic.as_ref()).map(|it| &it.delays);
        delays.map_or("-".into(), |delays| human(delays.p99().0 as f64, "ns"))
    };
    format!(
        "  {:16} service p99 {:>8}  other p99 {:>8}  batch {:.1} % of the CPU",
        system.to_string(),
        p99(Some(&measured.service)),
        p99(measured.other.as_ref()),
        measured.batch.hogs_percent()
    )
}

fn found(options: &ServicesOptions, rows: Vec<Row>) -> PartResult {
    let tables = table(options, &rows).into_iter().collect();
    let fair = System::fair().to_string();
    let find = |case: Case, metric: &str| row(&rows, &fair, case, metric);
    let one = find(Case::One, "p99_over_fifo").map(|row| {
        let what = format!("services, one: {fair}'s p99 over that of chrt -f 1");
        Target::at_most(&what, row, OVER_FIFO)
    });
    let others = [Case::Two, Case::Runaway].into_iter().filter_map(|case| {
        let what = format!("services, {}: {fair}'s p99 over that of chrt -f 1", case.name());
        find(case, "p99_over_fifo").map(|row| Target::at_most(&what, row, 1.0))
    });
    let batch = find(Case::Runaway, "batch_percent")
        .map(|row| Target::at_least("services, runaway: batch work under agent-fair", row, BATCH));
    let targets = one.into_iter().chain(others).chain(batch).collect();
    PartResult { tables, targets, rows, ..PartResult::default() }
}

fn table(options: &ServicesOptions, rows: &[Row]) -> Option<Table> {
    let title = "A service (50 us every 2 ms) next to batch work; with a service of 3 ms every 10 ms; with one \
        that never idles";
    let head = [
        "system",
        "one: p99",
        "batch",
        "two: p99",
        "other's p99",
        "batch",
        "runaway: p99",
        "batch",
    ];
    let mut table = Table::new(title, head);
    for system in &options.systems {
        let name = system.to_string();
        if row(rows, &name, Case::One, "p99_ns").is_none() {
            continue;
        }
        let time = |case, metric: &str| {
            let row = row(rows, &name, case, metric);
            Cell::number(row.map_or("-".into(), |row| human(row.value, "ns")))
        };
        let batch = |case| {
            let row = row(rows, &name, case, "batch_percent");
            Cell::number(row.map_or("-".into(), |row| format!("{:.1} %", row.value)))
        };
        table.push(vec![
            Cell::text(name.clone()),
            time(Case::One, "p99_ns"),
            batch(Case::One),
            time(Case::Two, "p99_ns"),
            time(Case::Two, "other_p99_ns"),
            batch(Case::Two),
            time(Case::Runaway, "p99_ns"),
            batch(Case::Runaway),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn row<'a>(rows: &'a [Row], system: &str, case: Case, metric: &str) -> Option<&'a Row> {
    rows.iter()
        .find(|row| (&*row.system, &*row.case, &*row.metric) == (system, case.name(), metric))
}
