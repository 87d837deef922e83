//! One run from options to counts.

use super::arrivals::{Arrival, Arrivals};
use super::clock::{Pace, RealClock};
use super::engine::{self, Clock, Plan, Transport};
use super::http::Http;
use super::mix::{Mix, Op};
use super::probe;
use super::request::Shape;
use super::resp::Resp;
use super::stream::Streams;
use super::tally::Tally;
use super::udp::Udp;
use heddle_core::Ns;
use std::io;
use std::net::SocketAddr;

/// What requests travel in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The compact datagrams of [`heddle_proto::udp`].
    Udp,
    /// RESP over so many TCP connections.
    Resp {
        /// How many.
        connections: usize,
    },
    /// HTTP/1.1 over so many TCP connections, which are kept alive: GETs and SCANs, one at a time on each. A request
    /// that finds none idle waits here, from the time at which it was due.
    Http {
        /// How many.
        connections: usize,
    },
}

/// A run, but for its rate.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where to.
    pub target: SocketAddr,
    /// In what.
    pub wire: Wire,
    /// Which operations.
    pub mix: Mix,
    /// Which keys, how long.
    pub shape: Shape,
    /// What counts: so long after the warm-up.
    pub duration: Ns,
    /// What does not count.
    pub warmup: Ns,
    /// When a request counts as lost.
    pub timeout: Ns,
    /// Fixes the arrivals.
    pub seed: u64,
    /// How the loop waits.
    pub pace: Pace,
}

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// An option out of its range.
    #[error("{0}")]
    Option(String),
    /// The server or the network.
    #[error("load on {0} failed: {1}")]
    Network(SocketAddr, #[source] io::Error),
}

/// A moment of a run, for those who watch.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The time since the run's first arrival could be due.
    pub now: Ns,
    /// When arrivals end.
    pub end: Ns,
    /// The counts so far.
    pub tally: &'a Tally,
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct LoadRun {
    /// Offered requests a second.
    pub rate: f64,
    /// What was counted.
    pub tally: Tally,
    /// The time that counts: less than asked for where the run was interrupted.
    pub window: Ns,
}

impl LoadRun {
    /// Answers a second to requests of `op`.
    pub fn throughput(&self, op: Op) -> f64 {
        self.tally.op(op).completed as f64 / self.window.as_secs_f64().max(1e-9)
    }

    /// Answers a second to all requests.
    pub fn throughput_of_all(&self) -> f64 {
        Op::ALL.into_iter().map(|op| self.throughput(op)).sum()
    }

    /// Why the run must not be quoted, in one line; `None` where it may.
    pub fn invalid(&self) -> Option<String> {
        let problems: Vec<String> = self.tally.problems().iter().map(ToString::to_string).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

/// The service time of each operation on the unloaded server, which slowdowns divide by.
///
/// # Errors
/// [`LoadError`], also where the server does not know the dataset that `options` assume.
pub fn unloaded_service(options: &LoadOptions) -> Result<[Option<Ns>; Op::ALL.len()], LoadError> {
    let network = |e| LoadError::Network(options.target, e);
    let mut transport = options.connect().map_err(network)?;
    probe::unloaded(&mut *transport, &options.mix, options.shape.keys).map_err(network)
}

/// Offers `rate` requests a second. `watch` sees the run go by and ends it early by returning `false`.
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

/// Offers `arrivals`, which come `rate` times a second, over any transport by any clock.
///
/// # Errors
/// Those of the transport.
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

/// The most requests that may wait at once: their table is what bounds this process's memory.
const MOST_WAITING: f64 = 4e6;

impl LoadOptions {
    /// The way to the server, in the chosen wire.
    pub fn connect(&self) -> io::Result<Box<dyn Transport>> {
        let shape = self.shape.clone();
        Ok(match self.wire {
            Wire::Udp => Box::new(Udp::connect(self.target, shape)?),
            Wire::Resp { connections } => {
                Box::new(Streams::<Resp>::connect(self.target, connections, shape)?)
            }
            Wire::Http { connections } => {
                Box::new(Streams::<Http>::connect(self.target, connections, shape)?)
            }
        })
    }

    /// Whether a run at `rate` makes sense, which [`measure`] asks as well.
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
        if self.duration == Ns::ZERO {
            return refuse("the duration is zero: nothing would be measured");
        }
        Ok(())
    }
}
