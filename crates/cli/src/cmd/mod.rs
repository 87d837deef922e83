//! The subcommands.
//!
//! To add one, write a file with `Args` (clap) and `run(Args) -> anyhow::Result<Outcome>`, and give it a
//! variant and an arm below or in its group. A test requires an `after_help` with an example.

use std::ffi::OsString;

use clap::Subcommand;
use heddle_probes::shims::Shim;
use heddle_probes::toolchain::Language;

use crate::exit::Outcome;

mod advise;
mod agent;
mod bench;
mod cargo;
mod cc;
mod compare;
mod completions;
mod demo;
mod deploy;
mod doctor;
mod go;
mod kv;
mod man;
mod metrics;
mod net;
mod policies;
mod record;
mod run;
mod share;
mod sim;
mod steer;
mod top;
mod tune;

/// The commands that `heddle --help` names in its last lines or beside a related one, so that it fits a screen.
pub const UNLISTED: [&str; 11] = [
    "diff",
    "status",
    "remove",
    "tune",
    "metrics",
    "net",
    "cc",
    "cargo",
    "compare",
    "completions",
    "man",
];

/// The commands, in the order of `heddle --help`.
#[derive(Subcommand)]
pub enum Command {
    /// Show on this machine what preemption and steering change.
    Demo(demo::Args),
    /// Show what this machine supports.
    Doctor(doctor::Args),
    /// List the policies and their parameters.
    Policies(policies::Args),
    /// Show each service: its load, waits and delays.
    Top(top::Args),
    /// Record what runs where, as a trace for Perfetto.
    Record(record::Args),
    /// Serve counters and histograms of all layers to Prometheus.
    #[command(hide = true)]
    Metrics(metrics::Args),
    /// See what would help a service, and prove it. Also: tune, by trials.
    Advise(advise::Args),
    /// Keep a running service within its limit, by trials.
    #[command(hide = true)]
    Tune(tune::Args),
    /// Choose which socket of a running server gets a request.
    #[command(subcommand, arg_required_else_help = true, after_help = steer::EXAMPLES)]
    Steer(steer::Steer),
    /// Choose which thread of a program runs on which CPU.
    #[command(subcommand, arg_required_else_help = true, after_help = agent::EXAMPLES)]
    Agent(agent::Agent),
    /// Deploy a service's policies from a file: apply, diff, status, remove.
    Apply(deploy::apply::Args),
    /// Compare a deployment file with what is in force.
    #[command(hide = true)]
    Diff(deploy::diff::Args),
    /// Show what is in force of each deployment.
    #[command(hide = true)]
    Status(deploy::status::Args),
    /// Take a deployment away.
    #[command(hide = true)]
    Remove(deploy::remove::Args),
    /// Run a pthread program, unmodified, on Heddle's threads.
    Run(run::Args),
    /// Let several applications use the same CPUs.
    #[command(subcommand, arg_required_else_help = true, after_help = share::EXAMPLES)]
    Share(share::Share),
    /// Show the connections of programs with a network of their own.
    #[command(subcommand, hide = true, arg_required_else_help = true, after_help = net::EXAMPLES)]
    Net(net::Net),
    /// Build, run and test Go programs with Heddle's scheduler.
    Go(go::Args),
    /// Compile C (c++ compiles C++) with preemption probes, by clang.
    #[command(hide = true)]
    Cc(cc::Args),
    /// Compile C++ with preemption probes, by clang.
    #[command(name = "c++", hide = true)]
    Cxx(cc::Args),
    /// Build, run and test Rust programs with preemption probes.
    #[command(hide = true)]
    Cargo(cargo::Args),
    /// Run a key-value server, or load one.
    #[command(subcommand, arg_required_else_help = true, after_help = kv::EXAMPLES)]
    Kv(kv::Kv),
    /// Measure Heddle beside other systems.
    #[command(subcommand, arg_required_else_help = true, after_help = bench::EXAMPLES)]
    Bench(bench::Bench),
    /// Simulate a policy on a machine of any size.
    #[command(subcommand, arg_required_else_help = true, after_help = sim::EXAMPLES)]
    Sim(sim::Sim),
    /// Compare two results, taking their spread into account.
    #[command(hide = true)]
    Compare(compare::Args),
    /// Print shell completions.
    #[command(hide = true)]
    Completions(completions::Args),
    /// Write the manual pages.
    #[command(hide = true)]
    Man(man::Args),
}

impl Command {
    /// Runs the chosen command.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Demo(args) => demo::run(args),
            Self::Doctor(args) => doctor::run(args),
            Self::Policies(args) => policies::run(args),
            Self::Top(args) => top::run(args),
            Self::Record(args) => record::run(args),
            Self::Advise(args) => advise::run(args),
            Self::Tune(args) => tune::run(&args),
            Self::Steer(steer) => steer.run(),
            Self::Agent(agent) => agent.run(),
            Self::Apply(args) => deploy::apply::run(&args),
            Self::Diff(args) => deploy::diff::run(&args),
            Self::Status(args) => deploy::status::run(&args),
            Self::Remove(args) => deploy::remove::run(&args),
            Self::Run(args) => run::run(args),
            Self::Share(share) => share.run(),
            Self::Net(net) => net.run(),
            Self::Metrics(args) => metrics::run(args),
            Self::Go(args) => go::run(args),
            Self::Cc(args) => cc::run(Language::C, args),
            Self::Cxx(args) => cc::run(Language::Cxx, args),
            Self::Cargo(args) => cargo::run(args),
            Self::Kv(kv) => kv.run(),
            Self::Bench(bench) => bench.run(),
            Self::Sim(sim) => sim.run(),
            Self::Compare(args) => compare::run(args),
            Self::Completions(args) => completions::run(args),
            Self::Man(args) => man::run(args),
        }
    }
}

/// Does what the program does under the name `shim`, with `arguments`.
pub fn run_shim(shim: Shim, arguments: Vec<OsString>) -> anyhow::Result<Outcome> {
    match shim {
        Shim::Clang(language) => cc::start(language, arguments),
        Shim::Rustc => cargo::rustc(arguments),
    }
}
