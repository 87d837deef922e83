//! `heddle bench`: Heddle beside other systems, in interleaved runs on this machine.

use clap::Subcommand;

use crate::exit::Outcome;

mod agent;
mod connections;
mod cross;
mod events;
mod events_predicted;
mod futures;
mod go;
mod kv;
pub mod kv_options;
mod net;
mod posix;
mod probes;
mod share;
mod sim;
mod steer;
mod suite;
mod threads;

/// The end of `heddle bench --help`.
pub const EXAMPLES: &str = "\
Examples:
  heddle bench threads
  heddle bench kv --report kv.html
  heddle compare before.json after.json     two results of --json, and whether they differ";

/// What `heddle bench` can measure.
#[derive(Subcommand)]
pub enum Bench {
    /// Thread operations: yield, spawn, mutex and condition variable, on Heddle and its peers.
    Threads(threads::Args),
    /// Async tasks: operations, memory, and short requests beside long ones, on Heddle, tokio and smol.
    Async(futures::Args),
    /// A key-value server on several systems under the same load.
    Kv(kv::Args),
    /// Steering: six executors in dilated time, the cost of a decision, unmodified servers.
    Steer(steer::Args),
    /// Agents: delay beside hogs, ghOSt's Table 3, a server beside antagonists, killed and replaced agents.
    Agent(agent::Args),
    /// Sockets and threads together: steering and an agent by the same classes, either alone and both.
    Cross(cross::Args),
    /// Events: one queue with a policy against the ways in which threads share epoll.
    Events(events::Args),
    /// Connections: a server with a thousand live connections and with a hundred thousand, beside tokio.
    Connections(connections::Args),
    /// Network: the runtime's own (HEDDLE_NET=xdp) beside the kernel's, over UDP and TCP.
    Net(net::Args),
    /// Go: BadgerDB and small programs, on the stock runtime and with Heddle's scheduler.
    Go(go::Args),
    /// POSIX: unmodified C programs, as kernel threads and under `heddle run`.
    Posix(posix::Args),
    /// Probes: what they cost ten kernels, how often they look at the clock, preemption by them and by signals.
    Probes(probes::Args),
    /// Share: what applications that share a CPU cost and gain, beside what the kernel offers.
    Share(share::Args),
    /// The simulator itself: task events per second, memory.
    Sim(sim::Args),
}

impl Bench {
    /// Runs the chosen bench.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Threads(args) => threads::run(args),
            Self::Async(args) => futures::run(args),
            Self::Kv(args) => kv::run(args),
            Self::Steer(args) => steer::run(args),
            Self::Agent(args) => agent::run(args),
            Self::Cross(args) => cross::run(args),
            Self::Events(args) => events::run(args),
            Self::Connections(args) => connections::run(args),
            Self::Net(args) => net::run(args),
            Self::Go(args) => go::run(args),
            Self::Posix(args) => posix::run(args),
            Self::Probes(args) => probes::run(args),
            Self::Share(args) => share::run(args),
            Self::Sim(args) => sim::run(args),
        }
    }
}
