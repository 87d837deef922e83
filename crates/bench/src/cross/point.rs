//! One system in one round: a fresh server, its agent, and the loads.

use super::child::{Ready, SERVER, ServerSpec};
use super::process::Process;
use super::{CrossOptions, System};
use crate::kv::cpu_time;
use crate::steer::{FLOWS, Flows};
use heddle_agent::guardian::{EnclaveEntry, Enclaves, Stage};
use heddle_core::Ns;
use heddle_load::{Arrivals, LoadRun, Op, Plan, Transport, drive};
use heddle_metrics::human;
use heddle_sys::scheduling::{self, Scheduling};
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Warm-up.
const WARMUP: Ns = Ns::from_ms(500);
/// Time after which a request counts as lost.
const TIMEOUT: Ns = Ns::from_secs(2);
/// The unit of `/proc/stat`.
const TICK: Ns = Ns::from_ms(10);
/// Seed of the arrivals.
const SEED: u64 = 1;

/// One system at one load in one round.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) round: u32,
    pub(super) system: System,
    /// As a share of the capacity.
    pub(super) load: f64,
    pub(super) run: LoadRun,
    /// CPU time of the agent, in per cent of a CPU.
    pub(super) agent: Option<f64>,
    /// What others took of the server's CPU, in per cent of it.
    pub(super) others: f64,
    /// Why it must not be quoted, in addition to the load's own verdict.
    doubt: Option<String>,
}

/// Measures all loads of a system.
///
/// # Errors
/// The server or the agent does not start; network errors.
pub(super) fn measure(
    options: &CrossOptions,
    system: System,
    round: u32,
    stop: &AtomicBool,
) -> io::Result<Vec<Sample>> {
    let (server, line) = Process::start(server(options, system), true)?;
    let ready: Ready = serde_json::from_str(&line)?;
    let name = format!("bench-cross-{}", std::process::id());
    let map = ready.class_map.as_deref().filter(|_| system.has_agent());
    let agent = map.map(|map| {
        let command = agent(options, &name, map, server.pid())?;
        Process::start(command, false).map(|(agent, _)| agent)
    });
    let agent = agent.transpose()?;
    let mut samples = Vec::new();
    for &load in &options.loads {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let process = agent.as_ref().and_then(|_| find(&name)).and_then(|it| it.record.agent);
        let reading = || {
            let agent = process.and_then(|pid| cpu_time(pid).ok());
            Ok::<_, io::Error>((agent, cpu_time(server.pid())?, busy(options.server_cpu)?))
        };
        let (begin, before) = (Instant::now(), reading()?);
        let run = offer(options, (round, load), &ready, stop)?;
        let (whole, after) = (begin.elapsed().as_secs_f64(), reading()?);
        let share = |used: Ns| used.as_secs_f64() / whole * 100.0;
        let agent_share = before.0.zip(after.0).map(|(from, to)| share(to - from));
        let (served, used) = (after.1 - before.1, after.2 - before.2);
        let others = share(Ns(used.0.saturating_sub(served.0)));
        let doubt = agent.as_ref().and_then(|_| given_back(&name));
        samples.push(Sample { round, system, load, run, agent: agent_share, others, doubt });
    }
    // First the agent, which gives the threads back.
    drop(agent);
    drop(server);
    Ok(samples)
}

/// The time for which a CPU ran threads so far, interrupts left out: `user`, `nice` and `system` of `/proc/stat`.
fn busy(cpu: u32) -> io::Result<Ns> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let name = format!("cpu{cpu} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    let fields = line.unwrap_or_default().split_whitespace().take(3);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(TICK * ticks)
}

fn server(options: &CrossOptions, system: System) -> Command {
    let spec = ServerSpec {
        system: system.to_string(),
        executors: options.executors,
        spared: options.spared,
        cpu: options.server_cpu,
        get_ns: CrossOptions::service(Op::Get).0,
        scan_ns: CrossOptions::service(Op::Scan).0,
        realtime_us: realtime_us(options),
    };
    let mut command = Command::new(&options.program);
    // Serializing our plain data cannot fail.
    let spec = serde_json::to_string(&spec).unwrap_or_default();
    command.args(["bench", "cross", "--child", SERVER, &spec]);
    command
}

/// What a user would type.
fn agent(options: &CrossOptions, name: &str, class_map: &str, pid: u32) -> io::Result<Command> {
    let backend = options.backend.clone().map_err(io::Error::other)?;
    let (backend, cpu, pid) =
        (backend.to_string(), options.server_cpu.to_string(), pid.to_string());
    let mut command = Command::new(&options.program);
    command.args(["agent", "run", "--name", name, "--policy", &options.policy, "--json"]);
    command.args(["--backend", &backend, "--cpus", &cpu, "--patience", "0s"]);
    command.args(["--class-map", class_map, "--pid", &pid]);
    Ok(command)
}

fn find(name: &str) -> Option<EnclaveEntry> {
    Enclaves::here().list().into_iter().find(|listed| listed.record.name == name)
}

/// Why the enclave does not match the measurement, if it does not.
fn given_back(name: &str) -> Option<String> {
    let Some(listed) = find(name) else { return Some("the enclave is gone".into()) };
    let active = listed.record.stage == Stage::Active;
    (!active).then(|| listed.record.reason.unwrap_or_else(|| "no agent was there".into()))
}

fn offer(
    options: &CrossOptions,
    (round, load): (u32, f64),
    ready: &Ready,
    stop: &AtomicBool,
) -> io::Result<LoadRun> {
    let rate = CrossOptions::capacity() * load;
    let plan = Plan { warmup: WARMUP, end: WARMUP + options.duration, timeout: TIMEOUT };
    let seed = SEED.wrapping_add(round.into());
    let arrivals = Arrivals::new(seed, rate, CrossOptions::mix(), FLOWS);
    let ports = if ready.get == ready.scan { vec![ready.get] } else { vec![ready.get, ready.scan] };
    let limit = realtime_us(options);
    let load = || {
        be_punctual(limit);
        let mut flows = Flows::to(&ports)?;
        let mut clock = flows.clock();
        let way = (&mut clock, &mut flows as &mut dyn Transport);
        drive(plan, rate, arrivals, way, [None; Op::ALL.len()], |_| !stop.load(Ordering::Relaxed))
    };
    // A thread of its own: this one's children must not inherit how soon it is run.
    let ended = std::thread::scope(|scope| scope.spawn(load).join());
    ended.map_err(|_| io::Error::other("the load panicked"))?
}

/// How long a thread may compute at a real-time priority without sleeping before the kernel kills its process. The
/// kernel counts an agent's threads without regard to sleep, so it is as long as all of their work. One limit for this
/// process and its children: without a privilege, a child cannot have a higher one.
fn realtime_us(options: &CrossOptions) -> u64 {
    let points = options.loads.len() as u64 + 1;
    (WARMUP + options.duration).0 / 1000 * points + 5_000_000
}

/// The calling thread sends when requests are due, whatever else runs on its CPU, except the agent. Without the
/// privilege it may be late, which the run then says.
fn be_punctual(limit_us: u64) {
    heddle_sys::thread::make_punctual();
    let limited = scheduling::limit_realtime(limit_us);
    let _ = limited.and_then(|()| scheduling::set(0, Scheduling::fifo(1)));
}

impl Sample {
    /// The p99 of GETs.
    pub(super) fn get_p99(&self) -> f64 {
        self.run.tally.op(Op::Get).latency.p99().0 as f64
    }

    /// One progress line.
    pub(super) fn line(&self) -> String {
        let p =
            |op, percent| human(self.run.tally.op(op).latency.percentile(percent).0 as f64, "ns");
        let why = self.invalid().map_or(String::new(), |why| format!("  ! {why}"));
        let agent = self.agent.map_or(String::new(), |share| format!("  agent {share:.0} %"));
        format!(
            "  {:10} {:>3.0} %  GET p50 {:>8}  p99 {:>8}  SCAN p50 {:>8}  p99 {:>8}  others {:.0} %{agent}{why}",
            self.system.to_string(),
            self.load * 100.0,
            p(Op::Get, 50.0),
            p(Op::Get, 99.0),
            p(Op::Scan, 50.0),
            p(Op::Scan, 99.0),
            self.others,
        )
    }

    /// Why it must not be quoted, if it must not.
    pub(super) fn invalid(&self) -> Option<String> {
        self.doubt.clone().or_else(|| self.run.invalid())
    }
}
