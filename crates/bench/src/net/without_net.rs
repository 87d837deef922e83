//! What is measured without a comparison under load: the stack in memory, idle lanes, idle connections.

use super::NetOptions;
use super::child::{Look, Role, SIZE};
use super::memory::Ends;
use super::system::{System, Waiting};
use super::targets::find;
use super::testbed::Testbed;
use super::usage::process_time;
use crate::connections::raise_descriptors;
use crate::suite::Target;
use heddle_core::Ns;
use heddle_metrics::{Collector, Progress, Row, Run};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Connections of the stack in memory.
const STACK: [u16; 5] = [1, 32, 100, 1_000, 10_000];
/// How long one of its runs takes.
const STACK_RUN: Duration = Duration::from_millis(100);
/// After this long, a runtime without work has gone to sleep.
const SETTLE: Duration = Duration::from_millis(300);
/// Connections before memory is measured: pools have grown.
const FIRST: u16 = 100;

const COST: &str = "cost";
const IDLE_CPU: &str = "idle_cpu";
const LOOK: &str = "is_ready";
const PREEMPTIONS: &str = "preemptions";
const INTERRUPTS: &str = "interrupts";
const BYTES: &str = "bytes";

/// The stack alone, by numbers of connections in turn.
///
/// # Errors
/// A request without an answer.
pub(super) fn stack(
    options: &NetOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let mut collect = Collector::new();
    for round in 0..options.rounds {
        progress.step(&format!("stack, round {}", round + 1));
        for connections in STACK {
            if stop.load(Relaxed) {
                return Ok(collect.into_rows());
            }
            let mut ends = Ends::connect(connections)?;
            // The first run fills caches.
            ends.cost(STACK_RUN / 10)?;
            let case = format!("stack-{connections}");
            collect.add("heddle-tcp", &case, COST, "ns", Run::ok(ends.cost(STACK_RUN)?));
        }
    }
    Ok(collect.into_rows())
}

/// Runtimes without work, a task that computes alone, and connections without traffic.
///
/// # Errors
/// An end failed.
pub(super) fn idle(testbed: &Testbed<'_>, progress: &mut Progress) -> io::Result<Vec<Row>> {
    let mut collect = Collector::new();
    let options = testbed.options;
    for round in 0..options.rounds {
        for system in [System::Kernel, System::Xdp] {
            progress.step(&format!("idle, round {}: {system}", round + 1));
            let role = Role::Look { duration: options.duration.0 };
            let job = testbed.job(options.cpus.server[0], (system, Waiting::Sleep), None, role);
            let look: Look = testbed.result("the idle runtime", &testbed.pair.near, &job)?;
            let mut add = |metric, unit, value: f64| {
                collect.add(system.name(), "idle", metric, unit, Run::ok(value));
            };
            look.look_ns.into_iter().for_each(|ns| add(LOOK, "ns", ns));
            add(PREEMPTIONS, "", look.preemptions as f64);
            add(INTERRUPTS, "", look.interrupts as f64);
            let (idle, bytes) = keep(testbed, system)?;
            add(IDLE_CPU, "ns", idle.0 as f64);
            add(BYTES, "B", bytes);
        }
    }
    Ok(collect.into_rows())
}

/// Returns a server's CPU time while it waits, and its resident memory for each of many idle connections. That of the
/// kernel is not in it.
fn keep(testbed: &Testbed<'_>, system: System) -> io::Result<(Ns, f64)> {
    let count = testbed.options.idle;
    let (server, port) = testbed.serve((system, Waiting::Sleep), None, Role::Keeper)?;
    let target = (heddle_netns::NEAR4, port).into();
    std::thread::sleep(SETTLE);
    let before = process_time(server.pid())?;
    std::thread::sleep(testbed.options.duration.into());
    let idle = process_time(server.pid())? - before;
    testbed.pair.far.run(|| {
        raise_descriptors((count + FIRST).into())?;
        let mut streams = Vec::new();
        open(target, FIRST, &mut streams)?;
        let before = resident(server.pid())?;
        open(target, count, &mut streams)?;
        let after = resident(server.pid())?;
        // The server ends first: it need not close them one by one.
        drop(server);
        Ok((idle, after.saturating_sub(before) as f64 / f64::from(count)))
    })
}

fn open(target: SocketAddr, count: u16, streams: &mut Vec<TcpStream>) -> io::Result<()> {
    let mut word = [0; SIZE];
    for _ in 0..count {
        let mut stream = TcpStream::connect(target)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(&word)?;
        stream.read_exact(&mut word)?;
        streams.push(stream);
    }
    Ok(())
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other(format!("/proc/{pid}/statm: {text}")))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Returns the targets that are in `rows`.
pub(super) fn targets(rows: &[Row]) -> Vec<Target> {
    let row = |system, case, metric| find(rows, system, case, metric);
    let most =
        |what: &str, row: Option<&Row>, most| row.map(|row| Target::at_most(what, row, most));
    let xdp = |metric| row("xdp", "idle", metric);
    let never = xdp(PREEMPTIONS).map(|row| {
        Target::never_above("preemptions of a task that computes while no ring has data", row, 0.0)
    });
    [
        most("the stack alone, 32 connections", row("heddle-tcp", "stack-32", COST), 250.0),
        most("the stack alone, 10,000 connections", row("heddle-tcp", "stack-10000", COST), 400.0),
        most("a look at a lane", xdp(LOOK), 5.0),
        never,
        most("CPU time of an idle runtime", xdp(IDLE_CPU), 50_000.0),
        most("memory of an idle connection", xdp(BYTES), 512.0),
    ]
    .into_iter()
    .flatten()
    .collect()
}
