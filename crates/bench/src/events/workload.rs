//! The paper's workloads: which requests arrive, on which connections, and how long they take.

use super::service::Service;
use crate::steer::{Dilation, EXECUTORS};
use heddle_core::{Ns, Rng};
use heddle_load::{Arrival, Arrivals, Mix, Op};

/// The kind of socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Unix stream sockets.
    Unix,
    /// TCP over loopback.
    Tcp,
}

/// A kind of request. In the generator's counts, light ones are GETs, long ones SCANs, those between SETs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// What the generator counts it as.
    pub op: Op,
    /// Its service time.
    pub time: Ns,
    /// Its share of all requests, or of all connections.
    pub share: f64,
}

/// A workload: requests and the threads that serve them.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The case in results.
    pub name: &'static str,
    /// The kinds of requests.
    pub classes: Vec<Class>,
    /// Whether a connection carries only one kind of request.
    pub by_connection: bool,
    /// Connections; each request uses a random one.
    pub connections: usize,
    /// Threads that serve.
    pub threads: usize,
    /// How threads pass the time of a service.
    pub service: Service,
    /// The kind of socket.
    pub wire: Wire,
}

/// How the service time of an arrival is chosen.
#[derive(Clone, Debug)]
pub(super) enum Demand {
    /// By the operation, in the order of [`Op::ALL`].
    ByOp([Ns; Op::ALL.len()]),
    /// By the connection.
    ByConnection(Vec<Ns>),
}

impl Demand {
    pub(super) fn of(&self, request: &Arrival) -> Ns {
        match self {
            Demand::ByOp(times) => times[request.op.index()],
            Demand::ByConnection(times) => times[request.key as usize],
        }
    }
}

fn class(op: Op, time: Ns, share: f64) -> Class {
    Class { op, time, share }
}

impl Workload {
    /// SKQ, section 6.4: the ZippyDB mix on RocksDB. The paper's mean service is 95 us, and 16.3 us without
    /// its 3 % of SEEKs, so a SEEK takes 2650 us. All times are multiplied by `scale`.
    #[must_use]
    pub fn zippydb(scale: f64) -> Workload {
        let times = |ns: f64| Ns((ns * scale) as u64);
        Workload {
            name: "zippydb",
            classes: vec![
                class(Op::Get, times(16_300.0), 0.97),
                class(Op::Scan, times(2_650_000.0), 0.03),
            ],
            by_connection: false,
            connections: 64,
            threads: 2,
            service: Service::Cpu,
            wire: Wire::Unix,
        }
    }

    /// SKQ, section 6.3: a geographical information system, where all requests of a connection are equally
    /// heavy. Six threads, in dilated time.
    #[must_use]
    pub fn gis(dilation: Dilation) -> Workload {
        let times = |us| dilation.stretch(Ns::from_us(us));
        Workload {
            name: "gis",
            classes: vec![
                class(Op::Get, times(10), 0.95),
                class(Op::Set, times(50), 0.04),
                class(Op::Scan, times(200), 0.01),
            ],
            by_connection: true,
            connections: 200,
            threads: EXECUTORS,
            service: Service::Dilated,
            wire: Wire::Unix,
        }
    }

    /// The same on SKQ's twelve threads with a hundred connections each. Services sleep, so twelve threads serve at
    /// once on any number of CPUs.
    #[must_use]
    pub fn dilated(dilation: Dilation) -> Workload {
        Workload {
            name: "dilated",
            connections: 1_200,
            threads: 12,
            service: Service::Asleep,
            ..Workload::gis(dilation)
        }
    }

    /// Uniform requests of 10 us.
    #[must_use]
    pub fn uniform() -> Workload {
        Workload {
            name: "uniform",
            classes: vec![class(Op::Get, Ns::from_us(10), 1.0)],
            ..Workload::zippydb(1.0)
        }
    }

    /// Requests per second that the threads could serve if they never waited.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        let mean: f64 = self.classes.iter().map(|c| c.share * c.time.as_secs_f64()).sum();
        self.threads as f64 / mean
    }

    /// The time of the lightest kind.
    #[must_use]
    pub fn light(&self) -> Ns {
        self.classes.iter().map(|class| class.time).min().unwrap_or_default()
    }

    /// The class of each connection, in exact shares, dealt at random.
    pub(super) fn weights(&self, seed: u64) -> Vec<Class> {
        let rng = Rng::new(seed);
        let count = |class: &Class| (class.share * self.connections as f64).round() as usize;
        let dealt = self.classes.iter().flat_map(|class| (0..count(class)).map(|_| *class));
        let mut all: Vec<Class> = dealt.take(self.connections).collect();
        all.resize(self.connections, self.classes[0]);
        (1..all.len()).rev().for_each(|last| all.swap(last, rng.below(last + 1)));
        all
    }

    /// An endless stream of requests with service times. Equal seeds give equal streams.
    pub(super) fn requests(
        &self,
        seed: u64,
        rate: f64,
    ) -> (Box<dyn Iterator<Item = Arrival> + Send>, Demand) {
        let arrivals = Arrivals::new(seed, rate, self.mix(), self.connections);
        if !self.by_connection {
            let mut times = [Ns::ZERO; Op::ALL.len()];
            self.classes.iter().for_each(|class| times[class.op.index()] = class.time);
            return (Box::new(arrivals), Demand::ByOp(times));
        }
        let weights = self.weights(seed);
        let times = weights.iter().map(|class| class.time).collect();
        let named =
            move |arrival: Arrival| Arrival { op: weights[arrival.key as usize].op, ..arrival };
        (Box::new(arrivals.map(named)), Demand::ByConnection(times))
    }

    fn mix(&self) -> Mix {
        let share = |class: &Class| format!("{}={}", class.op.name(), class.share);
        let text = self.classes.iter().map(share).collect::<Vec<_>>().join(",");
        text.parse().expect("shares are weights")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_those_of_the_research() {
        // 0.97 * 8.15 us + 0.03 * 1325 us = 47.66 us, two threads.
        assert!((Workload::zippydb(0.5).capacity() - 41_967.0).abs() < 10.0);
        // 0.95 * 200 us + 0.04 * 1 ms + 0.01 * 4 ms = 270 us, six threads.
        assert!((Workload::gis(Dilation(20)).capacity() - 22_222.0).abs() < 1.0);
        // 0.95 * 1 ms + 0.04 * 5 ms + 0.01 * 20 ms = 1.35 ms, twelve threads.
        assert!((Workload::dilated(Dilation(100)).capacity() - 8_889.0).abs() < 1.0);
        assert!((Workload::uniform().capacity() - 200_000.0).abs() < 1.0);
    }

    #[test]
    fn connections_have_their_weights_in_exact_shares_and_any_order() {
        let gis = Workload::gis(Dilation(20));
        let count = |weights: &[Class], op| weights.iter().filter(|class| class.op == op).count();
        let weights = gis.weights(1);
        let counts = [Op::Get, Op::Set, Op::Scan].map(|op| count(&weights, op));
        assert_eq!(counts, [190, 8, 2]);
        assert_eq!(weights, gis.weights(1), "a seed fixes it");
        assert_ne!(weights, gis.weights(2));
    }

    #[test]
    fn requests_take_as_long_as_their_kind_or_their_connection() {
        let (arrivals, demand) = Workload::zippydb(0.5).requests(1, 1e4);
        let mut scans = 0;
        for request in arrivals.take(10_000) {
            scans += u32::from(request.op == Op::Scan);
            let expected = if request.op == Op::Scan { 1_325_000 } else { 8_150 };
            assert_eq!(demand.of(&request), Ns(expected));
        }
        // Five standard deviations of a binomial of 3 %.
        assert!((215..385).contains(&scans), "{scans}");
        let gis = Workload::gis(Dilation(20));
        let weights = gis.weights(3);
        let (arrivals, demand) = gis.requests(3, 1e4);
        for request in arrivals.take(1_000) {
            let class = weights[request.key as usize];
            assert_eq!((request.op, demand.of(&request)), (class.op, class.time));
        }
    }
}
