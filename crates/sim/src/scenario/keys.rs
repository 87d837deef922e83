//! The keys of a scenario, in one table: how each is read and printed, and what it means.

use super::setters::*;
use super::value::{Problem, RawValue};
use super::{Load, Scenario};
use crate::workload::Arrivals;
use heddle_core::Ns;
use std::path::Path;

/// A key of a scenario file.
#[derive(Debug)]
pub struct Key {
    /// Its name, prefixed with that of its table: `machine.cpus`.
    pub path: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// A value, as it stands in a file.
    pub example: &'static str,
    pub(super) set: fn(&mut Scenario, &RawValue, &Path) -> Result<(), Problem>,
    /// Returns the value as written in a file; `None` if it equals the default.
    pub(super) show: fn(&Scenario) -> Option<String>,
}

/// Returns all keys, in the order in which a file is printed.
pub fn keys() -> &'static [Key] {
    KEYS
}

pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

fn quoted(text: impl ToString) -> String {
    toml::Value::String(text.to_string()).to_string()
}

fn float(number: f64) -> String {
    toml::Value::Float(number).to_string()
}

fn time(ns: Ns) -> Option<String> {
    (ns > Ns::ZERO).then(|| quoted(ns))
}

macro_rules! key {
    ($path:literal, $example:literal, $meaning:literal, $set:expr, $show:expr) => {
        Key { path: $path, meaning: $meaning, example: $example, set: $set, show: $show }
    };
}

/// A key whose value is a time that is zero by default.
macro_rules! cost {
    ($path:literal, $example:literal, $meaning:literal, $($field:tt)+) => {
        key!($path, $example, $meaning, |s, given, _| put(&mut s.$($field)+, given.time()), |s| time(s.$($field)+))
    };
}

/// A cost of the dispatcher, which exists as soon as one of them is given.
macro_rules! dispatcher {
    ($path:literal, $example:literal, $meaning:literal, $field:ident) => {
        key!(
            $path,
            $example,
            $meaning,
            |s, given, _| put(&mut s.dispatcher.get_or_insert_default().$field, given.time()),
            |s| s.dispatcher.map(|dispatcher| quoted(dispatcher.$field))
        )
    };
}

/// A cost of preemption, printed if the costs are not those of a named mechanism.
macro_rules! message {
    ($path:literal, $example:literal, $meaning:literal, $field:ident) => {
        key!(
            $path,
            $example,
            $meaning,
            |s, given, _| put(&mut s.preemption.$field, given.time()),
            |s| unnamed(s).map(|own| quoted(own.$field))
        )
    };
}

pub(super) const KEYS: &[Key] = &[
    key!(
        "policy",
        "\"shinjuku:quantum=30us\"",
        "a policy and its parameters (heddle policies lists them)",
        set_policy,
        |s| { Some(quoted(&s.policy)) }
    ),
    key!(
        "requests",
        "1_000_000",
        "how many requests are measured",
        |s, given, _| put(&mut s.requests, given.whole(100, u64::MAX)),
        |s| { Some(s.requests.to_string()) }
    ),
    key!(
        "warmup",
        "0.1",
        "requests before them that are not, as a share of them",
        |s, given, _| put(
            &mut s.warmup,
            given.number("a share of the requests, 0 to 10", |x| (0.0..=10.0).contains(&x))
        ),
        |s| Some(float(s.warmup))
    ),
    key!(
        "seed",
        "1",
        "what all random numbers are derived from",
        |s, given, _| put(&mut s.seed, given.whole(0, u64::MAX)),
        |s| { Some(s.seed.to_string()) }
    ),
    key!(
        "machine.cpus",
        "20",
        "CPUs that run tasks",
        |s, given, _| put(&mut s.machine.cpus, cpus(given, 1)),
        |s| { Some(s.machine.cpus.to_string()) }
    ),
    key!(
        "machine.smt",
        "2",
        "CPUs that are hyperthreads of one core",
        |s, given, _| put(&mut s.machine.smt, cpus(given, 1)),
        |s| { (s.machine.smt != 1).then(|| s.machine.smt.to_string()) }
    ),
    key!(
        "machine.llc",
        "8",
        "CPUs that share a last-level cache",
        |s, given, _| put(&mut s.machine.llc, cpus(given, 0)),
        |s| { (s.machine.llc != 0).then(|| s.machine.llc.to_string()) }
    ),
    key!(
        "machine.node",
        "128",
        "CPUs of a NUMA node",
        |s, given, _| put(&mut s.machine.node, cpus(given, 0)),
        |s| { (s.machine.node != 0).then(|| s.machine.node.to_string()) }
    ),
    cost!("costs.switch", "\"100ns\"", "to put a task on a CPU", costs.switch),
    cost!(
        "costs.app-switch",
        "\"1905ns\"",
        "more of it for a task of another application",
        costs.app_switch
    ),
    cost!("costs.wake", "\"1us\"", "until an idle CPU looks for a task", costs.wake),
    cost!("costs.steal", "\"200ns\"", "to take a task from another CPU's queue", costs.steal),
    cost!(
        "costs.central-lock",
        "\"500ns\"",
        "how long each taking holds the lock of a central queue",
        costs.central_lock
    ),
    cost!(
        "costs.migration.core",
        "\"50ns\"",
        "more at a start on a sibling hyperthread",
        costs.migration[1]
    ),
    cost!(
        "costs.migration.llc",
        "\"200ns\"",
        "more at a start elsewhere in the same last-level cache",
        costs.migration[2]
    ),
    cost!(
        "costs.migration.node",
        "\"1us\"",
        "more at a start in another cache of the node",
        costs.migration[3]
    ),
    cost!("costs.migration.far", "\"3us\"", "more at a start on another node", costs.migration[4]),
    key!(
        "preemption.mechanism",
        "\"uintr\"",
        "who tells a CPU to preempt, with published costs",
        set_mechanism,
        |s| { named(&s.preemption).map(quoted) }
    ),
    key!("preemption.by", "\"timer-core\"", "who tells it", set_preemption_source, |s| unnamed(s)
        .map(|own| quoted(preemption_source(own.by)))),
    message!("preemption.send", "\"84ns\"", "how long the teller is busy with one message", send),
    message!("preemption.deliver", "\"606ns\"", "from then until the message arrives", deliver),
    message!(
        "preemption.receive",
        "\"331ns\"",
        "how long the CPU is busy with receiving it",
        receive
    ),
    key!(
        "preemption.skip",
        "true",
        "whether a CPU is left alone while nothing waits for it",
        |s, given, _| put(&mut s.preemption.skip, given.truth()),
        |s| unnamed(s).map(|own| own.skip.to_string())
    ),
    message!(
        "preemption.interval",
        "\"5us\"",
        "how often it looks at running tasks; 0: at once when a quantum ends",
        interval
    ),
    key!(
        "preemption.slowdown",
        "\"2.3%\"",
        "by how much probes slow down all tasks",
        set_slowdown,
        |s| {
            unnamed(s).map(|own| quoted(format!("{}%", f64::from(own.slowdown_permille) / 10.0)))
        }
    ),
    key!("dispatcher", "\"none\"", "a table, or none to do without", set_dispatcher, |_| None),
    dispatcher!("dispatcher.admit", "\"100ns\"", "to take in one request", admit),
    dispatcher!("dispatcher.notice", "\"50ns\"", "to learn that a CPU is free", notice),
    dispatcher!("dispatcher.dispatch", "\"100ns\"", "to hand one task to one CPU", dispatch),
    dispatcher!("dispatcher.handoff", "\"200ns\"", "from then until the CPU has it", handoff),
    key!("workload.arrivals", "\"poisson\"", "when requests come", set_arrivals, |s| Some(quoted(
        &s.arrivals
    ))),
    key!(
        "workload.mix",
        "\"get: 95% 1us, scan: 5% 260us\"",
        "service times, or a paper's mix by name",
        set_mix,
        |s| { (!matches!(s.arrivals, Arrivals::Trace(_))).then(|| quoted(&s.mix)) }
    ),
    key!(
        "workload.load",
        "0.7",
        "a share of what the CPUs could do if scheduling cost nothing",
        set_load,
        |s| match s.load {
            Load::Share(share) if s.arrivals.is_open() => Some(float(share)),
            _ => None,
        }
    ),
    key!("workload.rate", "\"200k/s\"", "requests per second", set_rate, |s| match s.load {
        Load::PerSecond(rate) if s.arrivals.is_open() => Some(float(rate)),
        _ => None,
    }),
    key!(
        "workload.steering",
        "\"hash(flows=64)\"",
        "in front of which CPU a request arrives",
        |s, given, _| put(&mut s.steering.to, given.parsed("a steering, in quotes")),
        |s| Some(quoted(s.steering.to))
    ),
    key!(
        "workload.bound",
        "true",
        "whether it stays there until that CPU, or a thief, takes it",
        |s, given, _| put(&mut s.steering.binds, given.truth()),
        |s| s.steering.binds.then(|| "true".into())
    ),
    key!(
        "workload.connections",
        "1728",
        "connections that send the requests, each one at a time; 0: a task for each request",
        |s, given, _| put(&mut s.connections.count, given.whole(0, 1_000_000).map(|n| n as u32)),
        |s| (s.connections.count != 0).then(|| s.connections.count.to_string())
    ),
    key!(
        "workload.dealt",
        "true",
        "whether each connection has one part of the mix for all its requests",
        |s, given, _| put(&mut s.connections.dealt, given.truth()),
        |s| s.connections.dealt.then(|| "true".into())
    ),
    cost!("workload.base", "\"3us\"", "what every response has on top, outside the machine", base),
    key!(
        "batch.tasks",
        "20",
        "best-effort tasks that compute forever",
        |s, given, _| put(&mut s.batch, given.whole(0, 1_000_000).map(|n| n as usize)),
        |s| (s.batch != 0).then(|| s.batch.to_string())
    ),
];
