//! The subcommands. To add one: a file here with `Args` (clap) and `run(Args) -> anyhow::Result<Outcome>`, and a
//! variant with its arm below. An `after_help` with an example is required; a test looks for it.

use clap::Subcommand;

use crate::exit::Outcome;

mod agent;
mod bench_agent;
mod bench_connections;
mod bench_events;
mod bench_go;
mod bench_kv;
mod bench_sim;
mod bench_steer;
mod bench_threads;
mod check;
mod compare;
mod demo;
mod doctor;
mod events_predicted;
mod go;
mod go_tool;
mod kv_args;
mod load;
mod policies;
mod serve;
mod sim;
mod steer;
mod suite;

/// What `heddle` can be asked to do.
#[derive(Subcommand)]
pub enum Command {
    /// Show what preemption does to a key-value server's tail: a table and a report in three minutes.
    Demo(demo::Args),
    /// Serve keys and values over RESP and datagrams, on Heddle, tokio or threads.
    Serve(serve::Args),
    /// Offer an open-loop load to a running server, and measure its latencies.
    Load(load::Args),
    /// Measure: operations of threads, a key-value server under load.
    #[command(subcommand, arg_required_else_help = true)]
    Bench(Bench),
    /// Simulate: what a policy would do on a machine that is not at hand, in seconds.
    #[command(subcommand, arg_required_else_help = true, after_help = sim::EXAMPLES)]
    Sim(sim::Sim),
    /// Steer: have a policy choose among a running server's sockets, without a change to the server.
    Attach(steer::attach::Args),
    /// End an attachment: the kernel chooses again.
    Detach(steer::detach::Args),
    /// Put another policy in the place of one, without losing an input.
    Replace(steer::replace::Args),
    /// List what is attached.
    Ls(steer::ls::Args),
    /// Show how an attachment does: what was chosen, what failed, what a decision costs.
    Stats(steer::stats::Args),
    /// Show or set the maps of an attachment's policy.
    Map(steer::map::Args),
    /// Go: build, run and test Go programs with Heddle's scheduler in the Go runtime.
    Go(go::Args),
    /// Agents: have a policy schedule the threads of a program that is not changed.
    Agent(Box<agent::Args>),
    /// Say in plain words what is wrong with a steering policy, and at which hooks it can be deployed.
    Check(check::Args),
    /// Compare two results, with regard to their spread.
    Compare(compare::Args),
    /// List the scheduling policies and their parameters.
    Policies(policies::Args),
    /// Say what this machine can do, and what follows from it.
    Doctor(doctor::Args),
}

/// What `heddle bench` can measure.
#[derive(Subcommand)]
pub enum Bench {
    /// Operations of threads: yield, spawn, mutex, condition variable; Heddle beside its peers.
    Threads(bench_threads::Args),
    /// A key-value server on several systems, under the same load.
    Kv(bench_kv::Args),
    /// Steering: policies on six executors in dilated time, what they cost, servers that nobody changed.
    Steer(bench_steer::Args),
    /// Agents: a thread's delay beside hogs, ghOSt's Table 3, a server beside antagonists, killed and replaced agents.
    Agent(bench_agent::Args),
    /// Events: one queue with a policy against the ways in which threads share epoll.
    Events(bench_events::Args),
    /// Connections: a server with a thousand live ones and with a hundred thousand, beside tokio.
    Connections(bench_connections::Args),
    /// Go: BadgerDB and small programs, on the stock runtime and with Heddle's scheduler in it.
    Go(bench_go::Args),
    /// The simulator itself: task events per second, memory.
    Sim(bench_sim::Args),
}

impl Command {
    /// Runs the chosen subcommand.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Demo(args) => demo::run(args),
            Self::Serve(args) => serve::run(args),
            Self::Load(args) => load::run(args),
            Self::Bench(bench) => bench.run(),
            Self::Sim(sim) => sim.run(),
            Self::Attach(args) => steer::attach::run(args),
            Self::Detach(args) => steer::detach::run(args),
            Self::Replace(args) => steer::replace::run(args),
            Self::Ls(args) => steer::ls::run(args),
            Self::Stats(args) => steer::stats::run(args),
            Self::Map(args) => steer::map::run(args),
            Self::Go(args) => go::run(args),
            Self::Agent(args) => agent::run(*args),
            Self::Check(args) => check::run(args),
            Self::Compare(args) => compare::run(args),
            Self::Policies(args) => policies::run(args),
            Self::Doctor(args) => doctor::run(args),
        }
    }
}

impl Bench {
    fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Threads(args) => bench_threads::run(args),
            Self::Kv(args) => bench_kv::run(args),
            Self::Steer(args) => bench_steer::run(args),
            Self::Agent(args) => bench_agent::run(args),
            Self::Events(args) => bench_events::run(args),
            Self::Connections(args) => bench_connections::run(args),
            Self::Go(args) => bench_go::run(args),
            Self::Sim(args) => bench_sim::run(args),
        }
    }
}
