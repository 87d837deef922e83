//! `heddle agent run`: an enclave, its agent and its program.

use std::ffi::OsString;

use clap::ValueEnum;
use heddle_agent::PickNext;
use heddle_agent::guardian::cpus::{self, Cpus};
use heddle_agent::guardian::{
    self, AGENT_PROCESS, Agents, BackendChoice, Enclaves, Ending, Guardian, Kind, Workload,
};
use heddle_core::Ns;
use heddle_steer::policy;
use serde_json::json;

use super::existing::ExistingProcesses;
use super::{child, refused, time};
use crate::exit::{Outcome, Usage};
use crate::out;

/// Options of `heddle agent run`.
#[derive(clap::Args)]
#[command(
    override_usage = "\
heddle agent run --policy POLICY [OPTIONS] -- PROGRAM [ARGS]...
       heddle agent run --policy POLICY [OPTIONS] --pid PID | --unit NAME | --cgroup PATH
       heddle agent run --policy POLICY [OPTIONS] --name NAME",
    after_help = "\
Examples:
  heddle agent run --policy shinjuku:quantum=1ms --cpus 2-7 -- ./server --port 80
  heddle agent run --policy fifo --pid 812
  heddle agent run --policy priority --cpus 2-7 --unit nginx
  heddle agent run --policy shinjuku --cpus 2-7 --name lc

Needs root. If the agent dies, the program continues under the default scheduler. The exit code is
the program's: 128 + n if signal n ended it, 127 if there is no such program, 126 if it cannot be
started. `heddle policies` lists the policies."
)]
pub struct Enclave {
    /// The policy that schedules the threads, with parameters after a colon.
    #[arg(long)]
    policy: String,
    /// The enclave's CPUs, such as 2-7,9 [default: all but the first].
    #[arg(long, value_name = "LIST", value_parser = cpus::parse)]
    cpus: Option<Cpus>,
    /// What carries out the policy: scx (sched_ext), fair (the kernel's scheduler through nice values, slices
    /// and weights; some policies only), rt (real-time priorities, weaker than scx), or auto (the first of
    /// these that works here).
    #[arg(long, value_enum, default_value = "auto")]
    backend: Backend,
    /// One agent for all CPUs, or one per CPU.
    #[arg(long, value_enum, default_value = "central")]
    agents: AgentLayout,
    /// Let the central agent poll instead of sleep: faster decisions, at the cost of one of the enclave's CPUs.
    #[arg(long)]
    spin: bool,
    /// The enclave's name [default: the program's].
    #[arg(long)]
    name: Option<String>,
    /// Threads whose name or process name matches are best-effort: short for --class be=PATTERN.
    #[arg(long, value_name = "PATTERN")]
    be: Vec<String>,
    /// Which threads are lc (latency-critical) or be (best-effort), such as be=compact*; the first matching
    /// rule decides, then the nice value.
    #[arg(long, value_name = "RULE")]
    class: Vec<String>,
    /// What says which work each thread is on, and takes precedence over names (with --class be=work:2): the lines of a
    /// steering attachment (7), a map of its policy (7:work: an array by executor or a hash by thread), or the path
    /// of a pinned map.
    #[arg(long, value_name = "ID[:MAP]|PATH")]
    class_map: Option<String>,
    /// Which of the threads that the agent offers a CPU takes: a file with a function in C, or one that Heddle ships
    /// (longest-waiting, lowest-hint), with parameters after a colon. Needs scx and a policy that publishes which
    /// threads come next.
    #[arg(long, value_name = "FILE|NAME")]
    pick_next: Option<String>,
    /// How long a runnable thread may wait for a CPU before the agent counts as hung. 0s means forever, but
    /// with scx the kernel ends the scheduler, and with it all enclaves, after a thread has waited for 30 s.
    #[arg(long, default_value = "2s", value_parser = time::parse)]
    patience: Ns,
    /// How long threads wait for an agent's successor.
    #[arg(long, default_value = "1s", value_parser = time::parse)]
    grace: Ns,
    /// How often per minute a dead agent is replaced before its threads stay under the default scheduler; 0: never.
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    restarts: u32,
    #[command(flatten)]
    running: ExistingProcesses,
    /// Print only errors to standard error.
    #[arg(long, short)]
    quiet: bool,
    /// Print one JSON object when the enclave exists.
    #[arg(long)]
    json: bool,
    /// An agent process other than this binary, for tests.
    #[arg(long, hide = true)]
    agent_command: Option<OsString>,
    /// The program to start in the enclave, and its arguments. Without one the enclave is empty; others can join.
    #[arg(last = true)]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    Auto,
    Scx,
    Fair,
    Rt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AgentLayout {
    Central,
    Local,
}

/// Creates the enclave, and guards it until it ends.
pub fn run(args: Enclave) -> anyhow::Result<Outcome> {
    let json = args.json;
    let quiet = args.quiet;
    let options = options(args)?;
    let guardian = match Guardian::start(options, &Enclaves::here(), child::backends()) {
        Ok(guardian) => guardian,
        Err(error) => return refused(error),
    };
    announce(&guardian, json, quiet)?;
    match guardian.run() {
        Ok(Ending::Program(code)) => Ok(Outcome::Program(code)),
        Ok(Ending::Done) => Ok(Outcome::Done),
        Err(error) => refused(error),
    }
}

/// Compiles and checks a `pick_next`. Nothing of the enclave exists yet.
fn pick_next(given: &str) -> Result<PickNext, Usage> {
    let code = policy::pick_next(given);
    code.map(PickNext::new).map_err(|error| Usage(format!("--pick-next {given}: {error}")))
}

fn options(args: Enclave) -> Result<guardian::Options, Usage> {
    let be = args.be.iter().map(|pattern| format!("be={pattern}"));
    let agent = args.agent_command.unwrap_or_else(|| "/proc/self/exe".into());
    let workload = match args.running.target()? {
        Some(target) => Workload::Running(target),
        None if args.program.is_empty() => Workload::Nothing,
        None => Workload::Program(args.program),
    };
    Ok(guardian::Options {
        name: args.name,
        policy: args.policy,
        cpus: args.cpus,
        backend: match args.backend {
            Backend::Auto => BackendChoice::Auto,
            Backend::Scx => BackendChoice::Only(Kind::Scx),
            Backend::Fair => BackendChoice::Only(Kind::Fair),
            Backend::Rt => BackendChoice::Only(Kind::Rt),
        },
        agents: match args.agents {
            AgentLayout::Central => Agents::Central,
            AgentLayout::Local => Agents::Local,
        },
        spin: args.spin,
        classes: args.class.into_iter().chain(be).collect(),
        class_map: args.class_map,
        pick_next: args.pick_next.as_deref().map(pick_next).transpose()?,
        patience: (args.patience != Ns::ZERO).then_some(args.patience),
        grace: args.grace,
        restarts: args.restarts,
        workload,
        agent: vec![agent, "agent".into(), AGENT_PROCESS.into()],
        cleaner: child::cleaner_command(),
        launcher: child::launcher(),
        quiet: args.quiet,
    })
}

/// Announces the enclave on standard error, since standard output belongs to the program.
fn announce(guardian: &Guardian, json: bool, quiet: bool) -> anyhow::Result<()> {
    let record = guardian.record();
    if json {
        return Ok(out::text(&format!("{}\n", json!({ "schema": 1, "enclave": record })))?);
    }
    if !quiet {
        let name = &record.name;
        let more = match record.pid {
            None => format!("; add programs with: heddle agent join {name} -- PROGRAM"),
            Some(_) => format!("; see: heddle agent status {name}"),
        };
        eprintln!(
            "heddle: enclave `{name}`: {} schedules CPUs {} ({} backend){more}",
            record.policy,
            cpus::format(&record.cpus),
            record.backend
        );
    }
    Ok(())
}
