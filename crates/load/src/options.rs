//! One run from options to counts.

use super::arrivals::{Arrival, Arrivals};
use super::clock::{Pace, RealClock};
use super::engine::{self, Clock, Plan};
use super::http::Http;
use super::memcached::Memcached;
use super::mix::{Mix, Op};
use super::probe;
use super::request::Shape;
use super::resp::Resp;
use super::stream::Streams;
use super::tally::Tally;
use super::transport::Transport;
use super::udp::Udp;
use heddle_core::Ns;
use std::io;
use std::net::SocketAddr;

/// The transport of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The compact datagrams of [`heddle_proto::udp`].
    Udp,
    /// RESP over TCP connections.
    Resp {
        /// Number of connections.
        connections: usize,
    },
    /// memcached's text protocol over TCP connections: GETs and SETs.
    Memcached {
        /// Number of connections.
        connections: usize,
    },
    /// HTTP/1.1 over persistent TCP connections: GETs and SCANs, one at a time on each. A request that finds
    /// none idle waits in the generator; its latency counts from its due time.
    Http {
        /// Number of connections.
        connections: usize,
    },
}

/// Options of a run, except its rate.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The server's address.
    pub target: SocketAddr,
    /// The transport.
    pub wire: Wire,
    /// The mix of operations.
    pub mix: Mix,
    /// Keys and lengths.
    pub shape: Shape,
    /// Duration that counts, after the warm-up.
    pub duration: Ns,
    /// Warm-up, which does not count.
    pub warmup: Ns,
    /// Time limit, after which a request is lost.
    pub timeout: Ns,
    /// Seed of the arrivals.
    pub seed: u64,
    /// How the loop waits.
    pub pace: Pace,
}

/// Errors of a run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// An option out of its range.
    #[error("{0}")]
    Option(String),
    /// The server or the network failed.
    #[error("load on {0} failed: {1}")]
    Network(SocketAddr, #[source] io::Error),
}

/// The state of a run, passed to its watcher.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Time since the start of the arrivals.
    pub now: Ns,
    /// When arrivals end.
    pub end: Ns,
    /// The counts so far.
    pub tally: &'a Tally,
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct LoadRun {
    /// Offered requests per second.
    pub rate: f64,
    /// The counts.
    pub tally: Tally,
    /// The time that counts: shorter than requested if the run was interrupted.
    pub window: Ns,
}

impl LoadRun {
    /// Answers per second to requests of `op`.
    pub fn throughput(&self, op: Op) -> f64 {
        self.tally.op(op).completed as f64 / self.window.as_secs_f64().max(1e-9)
    }

    /// Answers per second to all requests.
    pub fn throughput_of_all(&self) -> f64 {
        Op::ALL.into_iter().map(|op| self.throughput(op)).sum()
    }

    /// Why the run must not be quoted, in one line; `None` if it is valid.
    pub fn invalid(&self) -> Option<String> {
        let problems: Vec<String> = self.tally.problems().iter().map(ToString::to_string).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

/// The service time of each operation on the unloaded server, which slowdowns divide by.
///
/// # Errors
/// [`LoadError`], also if the server lacks the dataset that `options` assume.
pub fn unloaded_service(options: &LoadOptions) -> Result<[Option<Ns>; Op::ALL.len()], LoadError> {
    let network = |e| LoadError::Network(options.target, e);
    let mut transport = options.connect().map_err(network)?;
    probe::unloaded(&mut *transport, &options.mix, options.shape.keys).map_err(network)
}

/// Offers `rate` requests per second. `watch` is called throughout the run and ends it early by returning `false`.
///
/// # Errors
/// [`LoadError`].
pub fn measure(
    options: &LoadOptions,
    rate: f64,
    unloaded: [Option<Ns>; Op::ALL.len()],
    mut watch: impl FnMut(Moment<'_>) -> bool,
) -> Result<LoadRun, LoadError> {
    options.check(rate)?;
    let network = |e| LoadError::Network(options.target, e);
    let (warmup, timeout) = (options.warmup, options.timeout);
    let plan = Plan { warmup, end: warmup + options.duration, timeout };
    let arrivals = Arrivals::new(options.seed, rate, options.mix.clone(), options.shape.keys);
    let mut transport = options.connect().map_err(network)?;
    let mut clock = RealClock::start(options.pace);
    let way = (&mut clock, &mut *transport as &mut dyn Transport);
    drive(plan, rate, arrivals, way, unloaded, &mut watch).map_err(network)
}

/// Offers `arrivals`, `rate` per second, over any transport and clock.
///
/// # Errors
/// Transport errors.
pub fn drive<C: Clock>(
    plan: Plan,
    rate: f64,
    arrivals: impl Iterator<Item = Arrival>,
    (clock, transport): (&mut C, &mut dyn Transport),
    unloaded: [Option<Ns>; Op::ALL.len()],
    mut watch: impl FnMut(Moment<'_>) -> bool,
) -> io::Result<LoadRun> {
    let mut tally = Tally::new(plan.timeout, unloaded);
    let tick = |now, tally: &Tally| watch(Moment { now, end: plan.end, tally });
    engine::run(plan, arrivals, clock, transport, &mut tally, tick)?;
    let end = tally.interrupted_at.unwrap_or(plan.end).min(plan.end);
    Ok(LoadRun { rate, tally, window: end - plan.warmup })
}

/// Most requests in flight: their table bounds this process's memory.
const MOST_WAITING: f64 = 4e6;

impl LoadOptions {
    /// Connects to the server over the chosen transport.
    pub fn connect(&self) -> io::Result<Box<dyn Transport>> {
        let shape = self.shape.clone();
        Ok(match self.wire {
            Wire::Udp => Box::new(Udp::connect(self.target, shape)?),
            Wire::Resp { connections } => {
                Box::new(Streams::<Resp>::connect(self.target, connections, shape)?)
            }
            Wire::Memcached { connections } => {
                Box::new(Streams::<Memcached>::connect(self.target, connections, shape)?)
            }
            Wire::Http { connections } => {
                Box::new(Streams::<Http>::connect(self.target, connections, shape)?)
            }
        })
    }

    /// Checks that a run at `rate` makes sense, as [`measure`] does.
    ///
    /// # Errors
    /// [`LoadError::Option`].
    pub fn check(&self, rate: f64) -> Result<(), LoadError> {
        let refuse = |why: &str| Err(LoadError::Option(why.to_owned()));
        if !(rate.is_finite() && rate > 0.0) {
            return refuse("a rate is a number of requests a second above zero");
        }
        if rate * self.timeout.as_secs_f64() > MOST_WAITING {
            return refuse("rate times timeout is over four million requests; lower one of them");
        }
        if self.shape.keys == 0 {
            return refuse("the dataset needs at least one key");
        }
        if self.shape.scan_len as usize > self.shape.keys && self.mix.share(Op::Scan) > 0.0 {
            return refuse("a SCAN cannot read more keys than the dataset has; lower --scan-len");
        }
        if matches!(self.wire, Wire::Http { .. }) && self.mix.share(Op::Set) > 0.0 {
            return refuse("there is no SET over HTTP; take a mix of get and scan, such as badger");
        }
        if matches!(self.wire, Wire::Memcached { .. }) && self.mix.share(Op::Scan) > 0.0 {
            return refuse("memcached has no SCAN; take a mix of get and set, such as usr");
        }
        if self.duration == Ns::ZERO {
            return refuse("the duration is zero: nothing would be measured");
        }
        Ok(())
    }
}
