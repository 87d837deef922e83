//! Virtual CPUs of several virtual machines on cores with two hyperthreads (ghOSt, section 4.5 and Table 4).
//!
//! The policies and the agent are the real ones; CPUs, threads and time are simulated, because `core-edf` needs cores
//! with hyperthreads and groups of commits. It is measured how much work is done, and for how long threads of
//! different VMs are on the hyperthreads of one core, where one could spy on the other. The kernel's own core
//! scheduling is not simulated, nor are the buffers flushed when a core changes its VM.

use super::simulated::{lock, paced};
use crate::suite::{PartResult, Target};
use heddle_agent::Backend as _;
use heddle_agent::classes::Classes;
use heddle_agent::model::machine::{Arrival, Machine, Spec};
use heddle_agent::model::world::{Costs, Step, World};
use heddle_agent::policy::{Scheduler, Settings};
use heddle_core::{CpuId, CpuInfo, Ns, Policy, Rng, TaskId};
use heddle_metrics::{Better, Cell, Collector, Progress, Row, Run, Table};
use heddle_policies::{Cfs, CoreEdf, build};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The case in results.
const CASE: &str = "vm";
/// How often a virtual CPU looks at its neighbour.
const STEP: Ns = Ns::from_us(50);
/// A halted virtual CPU sleeps for this long.
const HALT: Ns = Ns::from_us(100);
/// One step in so many ends with a halt.
const STEPS_TO_HALT: usize = 40;
/// The speed of a hyperthread while its sibling works, relative to a core of its own (assumed: bwaves is bound by
/// memory and floating point).
const SHARED_SPEED: f64 = 0.6;

/// Options of this part.
#[derive(Clone, Debug)]
pub struct VmOptions {
    /// Cores of two hyperthreads.
    pub cores: usize,
    /// Virtual machines.
    pub vms: usize,
    /// Numbers of virtual CPUs of all together, which take turns by VM.
    pub vcpus: Vec<usize>,
    /// Simulated time.
    pub duration: Ns,
}

impl VmOptions {
    /// The paper's 32 virtual CPUs on 25 cores, and three times as many, for which hyperthreads do not suffice.
    #[must_use]
    pub fn new(quick: bool) -> VmOptions {
        let duration = Ns::from_ms(if quick { 50 } else { 500 });
        VmOptions { cores: 25, vms: 8, vcpus: vec![32, 96], duration }
    }

    pub(super) fn steps(&self) -> u64 {
        (self.vcpus.len() * SETUPS.len()) as u64
    }

    fn cpus(&self) -> Vec<CpuInfo> {
        let info =
            |cpu: usize| CpuInfo { os_id: cpu as u32, node: 0, llc: 0, core: (cpu / 2) as u16 };
        (0..self.cores * 2).map(info).collect()
    }
}

/// What is compared.
struct Setup {
    policy: &'static str,
    simulate: fn(&VmOptions, &Setup, usize) -> io::Result<Observed>,
}

const SETUPS: [Setup; 2] = [
    Setup { policy: "cfs", simulate: simulate::<Cfs> },
    Setup { policy: "core-edf:period=10ms,budget=2ms,slice=1ms", simulate: simulate::<CoreEdf> },
];

impl Setup {
    /// The name in results.
    fn name(&self) -> &'static str {
        self.policy.split(':').next().unwrap_or(self.policy)
    }
}

/// What was observed in a run.
#[derive(Clone, Debug, Default, PartialEq)]
struct Observed {
    /// Time on a core of its own that would have done the work of each virtual CPU.
    work: Vec<f64>,
    /// Time on CPUs.
    ran: Ns,
    /// Of that, next to a sibling with a virtual CPU of the same VM, and of another.
    beside: [Ns; 2],
}

impl Observed {
    fn total(&self) -> f64 {
        self.work.iter().sum()
    }

    /// In per cent of the time on CPUs.
    fn share(&self, time: Ns) -> f64 {
        100.0 * time.0 as f64 / self.ran.0.max(1) as f64
    }
}

/// What the threads and the bench share.
type Shared<T> = Arc<Mutex<T>>;
/// The number of the virtual CPU of each thread.
type Numbers = Shared<HashMap<u32, usize>>;

fn simulate<P: Policy>(options: &VmOptions, setup: &Setup, count: usize) -> io::Result<Observed> {
    let infos = options.cpus();
    let machine = Machine::new(infos.clone()).arriving(Arrival::ByHand);
    let cpus = (0..infos.len() as u16).map(CpuId);
    let enclave = machine.enclave(Spec::of(cpus)).map_err(io::Error::other)?;
    enclave.attach().map_err(io::Error::other)?;
    let (numbers, vms) = (Numbers::default(), options.vms);
    let rules = (0..options.vms).map(|vm| format!("{vm}=vm{vm}").parse());
    let rules = rules.collect::<Result<_, _>>().map_err(io::Error::other)?;
    let names = Arc::clone(&numbers);
    let name = move |tid| lock(&names).get(&tid).map(|vcpu| format!("vm{}", vcpu % vms));
    let classes = Classes::new(rules).with_names(name);
    let settings = Settings { threads: count + 1, classes, ..Settings::default() };
    let policy: P = build(setup.policy).map_err(io::Error::other)?;
    let mut agent = Scheduler::new(policy, &enclave, settings);
    agent.adopt();
    let mut world = World::new(&enclave, Costs::fixed(), 1);
    let observed = Arc::new(Mutex::new(Observed { work: vec![0.0; count], ..Observed::default() }));
    for vcpu in 0..count {
        let task = Arc::new(Mutex::new(None));
        let script = script((vcpu, vms), &machine, (&task, &numbers, &observed));
        let thread = world.spawn(script);
        *lock(&task) = Some(thread);
        lock(&numbers).insert(machine.thread(thread).tid, vcpu);
    }
    world.run(&mut || paced(agent.round(), machine.time()), options.duration);
    let observed = lock(&observed).clone();
    Ok(observed)
}

/// A virtual CPU that computes, and now and then halts.
fn script(
    (vcpu, vms): (usize, usize),
    machine: &Machine,
    (task, numbers, observed): (&Shared<Option<TaskId>>, &Numbers, &Shared<Observed>),
) -> impl FnMut(&Rng) -> Step + Send + use<> {
    let (machine, task) = (machine.clone(), Arc::clone(task));
    let (numbers, observed) = (Arc::clone(numbers), Arc::clone(observed));
    let mut has_run = false;
    move |rng| {
        if !std::mem::replace(&mut has_run, true) {
            return Step::Run(STEP);
        }
        let cpu = lock(&task).map_or(0, |task| machine.thread(task).os_cpu);
        let sibling = machine.running(CpuId((cpu ^ 1) as u16)).map(|task| machine.thread(task).tid);
        let other = sibling.and_then(|tid| lock(&numbers).get(&tid).copied());
        let mut observed = lock(&observed);
        observed.ran += STEP;
        observed.work[vcpu] += STEP.0 as f64 * if other.is_some() { SHARED_SPEED } else { 1.0 };
        if let Some(other) = other {
            observed.beside[usize::from(other % vms != vcpu % vms)] += STEP;
        }
        if rng.below(STEPS_TO_HALT) == 0 {
            has_run = false;
            return Step::Sleep(HALT);
        }
        Step::Run(STEP)
    }
}

/// Simulates all policies. The result depends on nothing but the options, so there are no rounds.
///
/// # Errors
/// Errors of the model.
pub(super) fn run(
    options: &VmOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let mut collect = Collector::new();
    for &vcpus in &options.vcpus {
        let mut base = None;
        for setup in &SETUPS {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            progress.step(&format!("vm: {vcpus} virtual CPUs, {}", setup.name()));
            let observed = (setup.simulate)(options, setup, vcpus)?;
            let base = base.get_or_insert_with(|| observed.clone());
            add(&mut collect, options, (setup, vcpus), &observed, base);
        }
    }
    let rows: Vec<Row> = collect.into_rows().into_iter().map(noted).collect();
    let isolated =
        rows.iter().filter(|row| row.system == "core-edf" && row.metric == "beside_other");
    let target = |row: &Row| {
        let vcpus = row.load.unwrap_or_default();
        let what =
            format!("vm: {vcpus} virtual CPUs under core-edf, time beside another VM on a core");
        Target::at_most(&what, row, 0.0)
    };
    let targets = isolated.map(target).collect();
    let tables = table(options, &rows).into_iter().collect();
    Ok(PartResult { rows, tables, targets, ..PartResult::default() })
}

/// The rows' load is the number of virtual CPUs.
fn add(
    collect: &mut Collector,
    options: &VmOptions,
    (setup, vcpus): (&Setup, usize),
    observed: &Observed,
    base: &Observed,
) {
    let mut at = collect.at_load(vcpus as f64);
    let mut row = |metric: &str, unit: &str, value: f64| {
        at.add(setup.name(), CASE, metric, unit, Run::ok(value));
    };
    let time = options.duration.0 as f64;
    row("work", "cores", observed.total() / time);
    row("work_over_cfs", "x", observed.total() / base.total());
    let least = observed.work.iter().copied().fold(f64::INFINITY, f64::min);
    row("least_vcpu", "%", 100.0 * least / time);
    row("beside_same", "%", observed.share(observed.beside[0]));
    row("beside_other", "%", observed.share(observed.beside[1]));
}

fn noted(row: Row) -> Row {
    let policy = SETUPS.iter().find(|setup| setup.name() == row.system).map_or("", |it| it.policy);
    let row = row.with_note(&format!("simulated; policy {policy}"));
    match row.metric.as_str() {
        "work" | "work_over_cfs" | "least_vcpu" => row.with_better(Better::Higher),
        _ => row,
    }
}

fn table(options: &VmOptions, rows: &[Row]) -> Option<Table> {
    let title = format!(
        "Virtual CPUs of {} VMs on {} simulated cores of two hyperthreads (Table 4)",
        options.vms, options.cores
    );
    let head = [
        "vCPUs",
        "policy",
        "work, cores",
        "over cfs's",
        "slowest vCPU",
        "beside its VM",
        "beside another VM",
    ];
    let mut table = Table::new(title, head);
    for (&vcpus, setup) in options.vcpus.iter().flat_map(|n| SETUPS.iter().map(move |it| (n, it))) {
        let find = |metric: &str| {
            let same = |row: &&Row| row.system == setup.name() && row.load == Some(vcpus as f64);
            rows.iter().filter(same).find(|row| row.metric == metric)
        };
        let show = |metric: &str, how: fn(f64) -> String| {
            Cell::number(find(metric).map_or("-".into(), |row| how(row.value)))
        };
        let share: fn(f64) -> String = |value| format!("{value:.1} %");
        if find("work").is_none() {
            continue;
        }
        table.push(vec![
            Cell::number(vcpus.to_string()),
            Cell::text(setup.name()),
            show("work", |value| format!("{value:.2}")),
            show("work_over_cfs", |value| format!("{value:.3}")),
            show("least_vcpu", share),
            show("beside_same", share),
            show("beside_other", share),
        ]);
    }
    table.notes.push(format!(
        "simulated CPUs and threads under the real agent with ghOSt's costs (Table 3); a hyperthread whose sibling \
         works runs at {SHARED_SPEED} of the speed of a core, which is assumed. beside: of the time on CPUs. slowest \
         vCPU: of a core. cfs is Heddle's policy, not the kernel's scheduler, and fills a core before it takes the \
         next. The paper: ghOSt 0.957 of CFS, the kernel's core scheduling 0.949"
    ));
    (!table.rows.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time is simulated, so these can be compared.
    #[test]
    fn only_core_scheduling_keeps_vms_apart_and_no_virtual_cpu_starves() {
        let options = VmOptions { cores: 5, ..VmOptions::new(true) };
        let simulate = |setup: &Setup| (setup.simulate)(&options, setup, 24).unwrap();
        let [cfs, secure] = SETUPS.each_ref().map(simulate);
        assert!(cfs.beside[1] > Ns::ZERO, "{cfs:?}");
        assert_eq!(secure.beside[1], Ns::ZERO, "{secure:?}");
        for of in [&cfs, &secure] {
            assert!(of.work.iter().all(|&work| work > 0.0), "{of:?}");
        }
        assert_eq!(secure, simulate(&SETUPS[1]));
    }
}
