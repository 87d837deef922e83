//! Three types of queries on a machine of several sockets and caches (ghOSt, section 4.4 and Figure 8).
//!
//! The policies are the real ones and so is the agent; CPUs, caches, threads and time are simulated, because the effect
//! needs a machine with many caches. What a cold cache and remote memory cost is assumed (`queries`). The kernel's
//! default scheduler is not simulated: `cfs` is Heddle's policy of that name, under the same agent.

mod queries;

use super::simulated::{lock, paced};
use crate::suite::PartResult;
use heddle_agent::Backend as _;
use heddle_agent::model::machine::{Arrival, Machine, Spec};
use heddle_agent::model::world::{Costs, World};
use heddle_agent::policy::{Scheduler, Settings};
use heddle_core::{CpuId, CpuInfo, CpuSet, Ns, Policy};
use heddle_metrics::{Better, Cell, Collector, Progress, Row, Run, Table, human};
use heddle_policies::{Cfs, Fifo, Locality, WorkStealing, build};
use queries::{Distance, Kind, Observed, Worker};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Options of this part.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Sockets, each with its memory.
    pub nodes: usize,
    /// Last-level caches of a socket.
    pub caches: usize,
    /// Cores with a last-level cache, of two hyperthreads each.
    pub cores: usize,
    /// Loads, as shares of what the CPUs could do with warm caches and local memory.
    pub loads: Vec<f64>,
    /// Simulated time that counts.
    pub duration: Ns,
}

/// What is compared.
struct Setup {
    name: &'static str,
    /// The policy with its parameters.
    policy: &'static str,
    /// Whether a worker may run only on the node of its data.
    confined: bool,
    simulate: fn(&SearchOptions, &Setup, f64) -> io::Result<Observed>,
}

const SETUPS: &[Setup] = &[
    Setup { name: "fifo, all nodes", policy: "fifo", confined: false, simulate: simulate::<Fifo> },
    Setup { name: "fifo", policy: "fifo", confined: true, simulate: simulate::<Fifo> },
    Setup { name: "cfs", policy: "cfs", confined: true, simulate: simulate::<Cfs> },
    Setup {
        name: "work-stealing",
        policy: "work-stealing",
        confined: true,
        simulate: simulate::<WorkStealing>,
    },
    Setup {
        name: "locality, short wait",
        policy: "locality:wait=1us",
        confined: true,
        simulate: simulate::<Locality>,
    },
    Setup {
        name: "locality",
        policy: "locality:wait=100us",
        confined: true,
        simulate: simulate::<Locality>,
    },
];
/// The setup that others are compared with.
const BASELINE: &str = "cfs";

/// Simulated time before anything counts.
const WARMUP: Ns = Ns::from_ms(10);

impl SearchOptions {
    /// The paper's machine: two sockets of 16 caches of 8 hyperthreads; a small one with `quick`.
    #[must_use]
    pub fn new(quick: bool) -> SearchOptions {
        SearchOptions {
            nodes: 2,
            caches: if quick { 2 } else { 16 },
            cores: 4,
            loads: if quick { vec![0.6] } else { vec![0.5, 0.8] },
            duration: Ns::from_ms(if quick { 20 } else { 50 }),
        }
    }

    pub(super) fn steps(&self) -> u64 {
        (self.loads.len() * SETUPS.len()) as u64
    }

    fn cpus(&self) -> Vec<CpuInfo> {
        let count = self.nodes * self.caches * self.cores * 2;
        let of = |cpu: usize, size: usize| (cpu / size) as u16;
        let info = |cpu| CpuInfo {
            os_id: cpu as u32,
            node: of(cpu, self.caches * self.cores * 2),
            llc: of(cpu, self.cores * 2),
            core: of(cpu, 2),
        };
        (0..count).map(info).collect()
    }
}

/// Simulates all setups. The result depends on nothing but the options, so there are no rounds.
///
/// # Errors
/// Errors of the model.
pub(super) fn run(
    options: &SearchOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let mut collect = Collector::new();
    for &load in &options.loads {
        let mut base = None;
        // The baseline first, since the others' ratios need it.
        let (first, others): (Vec<_>, Vec<_>) = SETUPS.iter().partition(|it| it.name == BASELINE);
        for setup in first.into_iter().chain(others) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            progress.step(&format!("search, load {:.0} %: {}", load * 100.0, setup.name));
            let observed = (setup.simulate)(options, setup, load)?;
            add(&mut collect, (setup, load), &observed, base.as_ref());
            if setup.name == BASELINE {
                base = Some(observed);
            }
        }
    }
    let rows: Vec<Row> = collect.into_rows().into_iter().map(noted).collect();
    let tables = table(options, &rows).into_iter().collect();
    Ok(PartResult { rows, tables, ..PartResult::default() })
}

fn simulate<P: Policy>(options: &SearchOptions, setup: &Setup, load: f64) -> io::Result<Observed> {
    let infos = Arc::new(options.cpus());
    let machine = Machine::new(infos.to_vec()).arriving(Arrival::ByHand);
    let cpus = (0..infos.len() as u16).map(CpuId);
    let enclave =
        machine.enclave(Spec { ring: 1 << 16, ..Spec::of(cpus) }).map_err(io::Error::other)?;
    enclave.attach().map_err(io::Error::other)?;
    let policy: P = build(setup.policy).map_err(io::Error::other)?;
    let workers: usize = Kind::ALL.iter().map(|kind| kind.workers(infos.len())).sum();
    let settings = Settings { threads: workers + 1, ..Settings::default() };
    let mut agent = Scheduler::new(policy, &enclave, settings);
    agent.adopt();
    let end = WARMUP + options.duration;
    let observed = Arc::new(Mutex::new(Observed::default()));
    let mut world = World::new(&enclave, Costs::fixed(), 1);
    for kind in Kind::ALL {
        let each = kind.rate(load, infos.len());
        for k in 0..kind.workers(infos.len()) {
            let node = (k % options.nodes) as u16;
            let worker = Worker::new(kind, node, each, (WARMUP, end), &observed);
            let (thread, of) = (Arc::new(Mutex::new(None)), machine.clone());
            let known = Arc::clone(&thread);
            let infos = Arc::clone(&infos);
            let mut script = worker.script();
            let task = world.spawn(move |rng| {
                let task = *lock(&known);
                let cpu = task.map_or(0, |task| of.thread(task).os_cpu as usize);
                script(rng, of.time(), infos[cpu])
            });
            *lock(&thread) = Some(task);
            if setup.confined && kind.has_data() {
                let mut own = CpuSet::EMPTY;
                let of_node = infos_of(options, node);
                of_node.for_each(|cpu| own.insert(cpu));
                machine.set_affinity(task, own);
            }
        }
    }
    world.run(&mut || paced(agent.round(), machine.time()), end);
    let observed = lock(&observed).clone();
    Ok(observed)
}

/// The CPUs of a node.
fn infos_of(options: &SearchOptions, node: u16) -> impl Iterator<Item = CpuId> {
    let infos = options.cpus().into_iter().enumerate();
    infos.filter(move |(_, info)| info.node == node).map(|(cpu, _)| CpuId(cpu as u16))
}

/// The rows' load is the load in per cent.
fn add(
    collect: &mut Collector,
    (setup, load): (&Setup, f64),
    observed: &Observed,
    base: Option<&Observed>,
) {
    let mut at = collect.at_load(load * 100.0);
    for kind in Kind::ALL {
        let (case, of) = (kind.case(), observed.of(kind));
        at.latency(setup.name, case, &of.latency, None);
        let done = 100.0 * of.latency.count() as f64 / of.due.max(1) as f64;
        at.add(setup.name, case, "done", "%", Run::ok(done));
        if let Some(base) = base {
            let p99 = |observed: &Observed| observed.of(kind).latency.p99().0 as f64;
            at.add(setup.name, case, "p99_over_cfs", "x", Run::ok(p99(observed) / p99(base)));
        }
    }
    let starts: u64 = observed.starts.iter().sum();
    for (distance, count) in Distance::ALL.iter().zip(observed.starts) {
        let share = 100.0 * count as f64 / starts.max(1) as f64;
        at.add(setup.name, "starts", distance.metric(), "%", Run::ok(share));
    }
}

fn noted(row: Row) -> Row {
    let policy = SETUPS.iter().find(|setup| setup.name == row.system).map_or("", |it| it.policy);
    let row = row.with_note(&format!("simulated; policy {policy}"));
    match row.metric.as_str() {
        "done" | "same_core" | "same_cache" => row.with_better(Better::Higher),
        _ => row,
    }
}

fn table(options: &SearchOptions, rows: &[Row]) -> Option<Table> {
    let title = format!(
        "Search queries on {} simulated CPUs: {} sockets of {} caches of {} hyperthreads (Figure 8)",
        options.cpus().len(),
        options.nodes,
        options.caches,
        options.cores * 2
    );
    let head = [
        "load",
        "policy",
        "A: p50",
        "p99",
        "over cfs's",
        "B: p99",
        "over cfs's",
        "C: p99",
        "over cfs's",
        "same core",
        "cache",
        "node",
        "A done",
    ];
    let mut table = Table::new(&title, head);
    for &load in &options.loads {
        for setup in SETUPS {
            let find = |case: &str, metric: &str| {
                let same = |row: &&Row| row.system == setup.name && row.load == Some(load * 100.0);
                rows.iter().filter(same).find(|row| row.case == case && row.metric == metric)
            };
            let show = |case: &str, metric: &str, how: fn(f64) -> String| {
                Cell::number(find(case, metric).map_or("-".into(), |row| how(row.value)))
            };
            let time: fn(f64) -> String = |value| human(value, "ns");
            let ratio: fn(f64) -> String = |value| format!("{value:.2}");
            let share: fn(f64) -> String = |value| format!("{value:.0} %");
            if find("A", "p99").is_none() {
                continue;
            }
            table.push(vec![
                Cell::number(format!("{:.0} %", load * 100.0)),
                Cell::text(setup.name),
                show("A", "p50", time),
                show("A", "p99", time),
                show("A", "p99_over_cfs", ratio),
                show("B", "p99", time),
                show("B", "p99_over_cfs", ratio),
                show("C", "p99", time),
                show("C", "p99_over_cfs", ratio),
                show("starts", "same_core", share),
                show("starts", "same_cache", share),
                show("starts", "same_node", share),
                show("A", "done", share),
            ]);
        }
    }
    table.notes.push(queries::in_words());
    table.notes.push(
        "simulated CPUs, caches and threads under the real agent with ghOSt's costs (Table 3). load: of the CPU time \
         that queries would need with warm caches. all nodes: workers of type A are not confined to the node of \
         their data. same core, cache, node: where starts of type A and C are, relative to where the worker ran last; \
         A done: of the queries that fell due. cfs is Heddle's policy, not the kernel's scheduler"
            .into(),
    );
    (!table.rows.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(name: &str) -> &'static Setup {
        SETUPS.iter().find(|setup| setup.name == name).unwrap()
    }

    fn observe(name: &str) -> Observed {
        let options = SearchOptions::new(true);
        (setup(name).simulate)(&options, setup(name), 0.6).unwrap()
    }

    #[test]
    fn the_machine_has_caches_of_eight_hyperthreads() {
        let cpus = SearchOptions::new(false).cpus();
        assert_eq!(cpus.len(), 256);
        assert_eq!((cpus[7].llc, cpus[8].llc, cpus[127].node, cpus[128].node), (0, 1, 0, 1));
        assert_eq!((cpus[6].core, cpus[7].core, cpus[8].core), (3, 3, 4));
    }

    /// Time is simulated, so these can be compared.
    #[test]
    fn workers_keep_their_cache_under_locality_and_confined_ones_their_node() {
        let [locality, fifo, free] = ["locality", "fifo", "fifo, all nodes"].map(observe);
        let near = |of: &Observed| of.starts[0] + of.starts[1];
        let all = |of: &Observed| of.starts.iter().sum::<u64>();
        assert!(
            near(&locality) * all(&fifo) > near(&fifo) * all(&locality),
            "{locality:?} {fifo:?}"
        );
        assert_eq!(fifo.of(Kind::A).remote, 0);
        assert!(free.of(Kind::A).remote > 0);
        for of in [&locality, &fifo, &free] {
            assert!(Kind::ALL.iter().all(|&kind| of.of(kind).latency.count() > 0), "{of:?}");
        }
    }

    #[test]
    fn equal_options_give_equal_results() {
        assert_eq!(observe("locality"), observe("locality"));
    }
}
