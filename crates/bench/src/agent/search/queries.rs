//! The queries, the worker threads that serve them, and what caches and memory cost them.

use super::super::simulated::lock;
use heddle_agent::model::world::Step;
use heddle_core::{CpuInfo, Ns, Rng};
use heddle_metrics::Histogram;
use std::sync::{Arc, Mutex};

/// The types of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Computation on much memory, by workers whose data is on one node.
    A,
    /// Little computation around an access to the SSD, by short-lived workers.
    B,
    /// Computation, by long-living workers.
    C,
}

/// Parameters of a type. The paper gives none; these are assumptions of plausible size.
struct Params {
    case: &'static str,
    /// The share of the CPU time.
    share: f64,
    /// CPU time with a warm cache and local memory.
    work: Ns,
    /// The pause for the SSD, in the middle of the work.
    ssd: Ns,
    /// Additional time on another core of the cache, with another cache, and on another node than last.
    cold: [Ns; 3],
    /// Additional time for each query whose data is on another node, in per cent.
    remote: u64,
    /// Workers for each CPU.
    workers: f64,
}

const A: Params = Params {
    case: "A",
    share: 0.5,
    work: Ns::from_us(200),
    ssd: Ns::ZERO,
    cold: [Ns::from_us(5), Ns::from_us(60), Ns::from_us(60)],
    remote: 50,
    workers: 2.0,
};
const B: Params = Params {
    case: "B",
    share: 0.1,
    work: Ns::from_us(40),
    ssd: Ns::from_us(100),
    // A short-lived worker has no cache to return to.
    cold: [Ns::ZERO; 3],
    remote: 0,
    workers: 1.0,
};
const C: Params = Params {
    case: "C",
    share: 0.4,
    work: Ns::from_ms(1),
    ssd: Ns::ZERO,
    cold: [Ns::from_us(5), Ns::from_us(20), Ns::from_us(20)],
    remote: 0,
    workers: 1.0,
};

/// The assumptions, for the table.
pub(super) fn in_words() -> String {
    format!(
        "assumed: A works {} ({} with the cache of another CCX cold, and half as much again if its data is on another \
         node), B twice {} around {} of SSD, C {} ({} cold); half of the CPU time is A's, a tenth B's",
        A.work,
        A.work + A.cold[1],
        B.work / 2,
        B.ssd,
        C.work,
        C.work + C.cold[1]
    )
}

impl Kind {
    /// All types.
    pub(super) const ALL: [Kind; 3] = [Kind::A, Kind::B, Kind::C];

    fn params(self) -> &'static Params {
        match self {
            Kind::A => &A,
            Kind::B => &B,
            Kind::C => &C,
        }
    }

    /// The case in results.
    pub(super) fn case(self) -> &'static str {
        self.params().case
    }

    /// Whether its workers' data is on one node.
    pub(super) fn has_data(self) -> bool {
        self.params().remote > 0
    }

    /// Workers on `cpus` CPUs.
    pub(super) fn workers(self, cpus: usize) -> usize {
        (self.params().workers * cpus as f64) as usize
    }

    /// Queries of one worker per nanosecond, so that all workers together have their share of `load`.
    pub(super) fn rate(self, load: f64, cpus: usize) -> f64 {
        let params = self.params();
        let busy = load * params.share * cpus as f64;
        busy / params.work.0 as f64 / self.workers(cpus) as f64
    }
}

/// Where a worker starts, relative to where it ran last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    Core,
    Cache,
    Node,
    Remote,
}

impl Distance {
    /// All distances.
    pub(super) const ALL: [Distance; 4] =
        [Distance::Core, Distance::Cache, Distance::Node, Distance::Remote];

    /// The name in results.
    pub(super) fn metric(self) -> &'static str {
        match self {
            Distance::Core => "same_core",
            Distance::Cache => "same_cache",
            Distance::Node => "same_node",
            Distance::Remote => "other_node",
        }
    }

    fn between(a: CpuInfo, b: CpuInfo) -> Distance {
        match () {
            () if a.core == b.core => Distance::Core,
            () if a.llc == b.llc => Distance::Cache,
            () if a.node == b.node => Distance::Node,
            () => Distance::Remote,
        }
    }
}

/// What was observed of one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OfKind {
    /// From when a query was due until its answer.
    pub(super) latency: Histogram,
    /// Queries that fell due. A worker that is late does not know of those behind the one that it works on.
    pub(super) due: u64,
    /// Queries served on another node than their data's.
    pub(super) remote: u64,
}

/// What was observed in a run, without the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed {
    kinds: [OfKind; Kind::ALL.len()],
    /// Starts of queries of types A and C, by [`Distance`].
    pub(super) starts: [u64; Distance::ALL.len()],
}

impl Observed {
    /// Of one type.
    pub(super) fn of(&self, kind: Kind) -> &OfKind {
        &self.kinds[kind as usize]
    }
}

/// A worker thread: it serves its own queries in the order in which they fall due, and sleeps between them.
pub(super) struct Worker {
    kind: Kind,
    node: u16,
    /// Queries per nanosecond.
    rate: f64,
    warmup: Ns,
    end: Ns,
    observed: Arc<Mutex<Observed>>,
}

/// The progress of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waits,
    Works,
    Reads,
    WorksOn,
}

impl Worker {
    /// A worker with `rate` queries per nanosecond, whose data is on `node`. Queries due between `warmup` and `end`
    /// count.
    pub(super) fn new(
        kind: Kind,
        node: u16,
        rate: f64,
        (warmup, end): (Ns, Ns),
        observed: &Arc<Mutex<Observed>>,
    ) -> Worker {
        Worker { kind, node, rate, warmup, end, observed: Arc::clone(observed) }
    }

    /// Its steps; asked with the time and the CPU that it has.
    pub(super) fn script(self) -> impl FnMut(&Rng, Ns, CpuInfo) -> Step + Send {
        let (mut progress, mut due, mut last) = (Progress::Waits, None, None);
        move |rng, now, cpu| {
            let params = self.kind.params();
            loop {
                let at = *due.get_or_insert_with(|| self.next(now, rng));
                match progress {
                    Progress::Waits if now < at => return Step::Sleep(at - now),
                    Progress::Waits => {
                        let work = self.work(at, cpu, &mut last);
                        progress = Progress::Works;
                        if params.ssd > Ns::ZERO {
                            return Step::Run(work / 2);
                        }
                        progress = Progress::WorksOn;
                        return Step::Run(work);
                    }
                    Progress::Works => {
                        progress = Progress::Reads;
                        return Step::Sleep(params.ssd);
                    }
                    Progress::Reads => {
                        progress = Progress::WorksOn;
                        return Step::Run(params.work / 2);
                    }
                    Progress::WorksOn => {
                        if self.counts(at) {
                            self.with(|observed| {
                                observed.kinds[self.kind as usize].latency.record(now - at);
                            });
                        }
                        (progress, due) = (Progress::Waits, Some(self.next(at, rng)));
                    }
                }
            }
        }
    }

    /// How long a query takes that starts on `cpu`.
    fn work(&self, due: Ns, cpu: CpuInfo, last: &mut Option<CpuInfo>) -> Ns {
        let params = self.kind.params();
        let distance = last.replace(cpu).map(|last| Distance::between(last, cpu));
        let is_remote = params.remote > 0 && cpu.node != self.node;
        let cold = match distance {
            None | Some(Distance::Core) => Ns::ZERO,
            Some(distance) => params.cold[distance as usize - 1],
        };
        if self.counts(due) {
            self.with(|observed| {
                let of = &mut observed.kinds[self.kind as usize];
                of.remote += u64::from(is_remote);
                if self.kind != Kind::B
                    && let Some(distance) = distance
                {
                    observed.starts[distance as usize] += 1;
                }
            });
        }
        let work = params.work + cold;
        if is_remote { work + work * params.remote / 100 } else { work }
    }

    /// Whether a query that is due at `at` counts.
    fn counts(&self, at: Ns) -> bool {
        (self.warmup..self.end).contains(&at)
    }

    fn with(&self, what: impl FnOnce(&mut Observed)) {
        what(&mut lock(&self.observed));
    }

    /// When the query after that of `before` is due: the gaps are exponential.
    fn next(&self, before: Ns, rng: &Rng) -> Ns {
        let unit = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let at = before + Ns((-(1.0 - unit).ln() / self.rate) as u64 + 1);
        if self.counts(at) {
            self.with(|observed| observed.kinds[self.kind as usize].due += 1);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: CpuInfo = CpuInfo { os_id: 0, node: 0, llc: 0, core: 0 };

    fn worker(kind: Kind) -> (Worker, Arc<Mutex<Observed>>) {
        let observed = Arc::new(Mutex::new(Observed::default()));
        (Worker::new(kind, 0, 1e-6, (Ns::ZERO, Ns::MAX), &observed), observed)
    }

    #[test]
    fn cold_caches_and_remote_memory_cost_time() {
        let (worker, observed) = worker(Kind::A);
        let mut last = None;
        let mut on = |cpu| worker.work(Ns(1), cpu, &mut last);
        assert_eq!(on(HERE), A.work);
        assert_eq!(on(CpuInfo { os_id: 1, ..HERE }), A.work, "a sibling");
        assert_eq!(on(CpuInfo { core: 1, ..HERE }), A.work + A.cold[0]);
        assert_eq!(on(CpuInfo { core: 9, llc: 1, ..HERE }), A.work + A.cold[1]);
        let far = CpuInfo { core: 99, llc: 9, node: 1, ..HERE };
        assert_eq!(on(far), (A.work + A.cold[2]) * 3 / 2);
        assert_eq!(on(far), A.work * 3 / 2, "its cache is warm, its memory is not nearer");
        let observed = observed.lock().unwrap();
        assert_eq!(observed.starts, [2, 1, 1, 1]);
        assert_eq!(observed.of(Kind::A).remote, 2);
    }

    #[test]
    fn a_query_counts_from_when_it_was_due() {
        let (worker, observed) = worker(Kind::B);
        let rng = Rng::new(1);
        let mut script = worker.script();
        let Step::Sleep(gap) = script(&rng, Ns::ZERO, HERE) else { panic!("no query is due") };
        // The thread gets its CPU late.
        let late = gap + Ns::from_us(7);
        assert_eq!(script(&rng, late, HERE), Step::Run(B.work / 2));
        assert_eq!(script(&rng, late + B.work / 2, HERE), Step::Sleep(B.ssd));
        assert_eq!(script(&rng, late + B.work / 2 + B.ssd, HERE), Step::Run(B.work / 2));
        script(&rng, late + B.work + B.ssd, HERE);
        let observed = observed.lock().unwrap();
        // The next one is due, too.
        assert_eq!((observed.of(Kind::B).latency.count(), observed.of(Kind::B).due), (1, 2));
        let took = observed.of(Kind::B).latency.max();
        let expected = Ns::from_us(7) + B.work + B.ssd;
        assert!(took >= expected && took.0 < expected.0 * 11 / 10, "{took}");
    }

    #[test]
    fn the_rates_add_up_to_the_load() {
        let busy =
            |kind: Kind| kind.rate(0.7, 64) * kind.workers(64) as f64 * kind.params().work.0 as f64;
        let total: f64 = Kind::ALL.iter().map(|&kind| busy(kind)).sum();
        assert!((total - 0.7 * 64.0).abs() < 1e-6, "{total}");
    }
}
