//! The events that the kit generates.

use heddle_core::{Class, Ns, TaskAttrs};
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

/// A machine and the events on it. CPU and task numbers are taken modulo what exists, so that every
/// sequence is valid, and so is what shrinking leaves of it.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub cpus: usize,
    pub events: Vec<Event>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The task that runs on `cpu` creates one.
    Spawn { cpu: u8, attrs: TaskAttrs },
    /// An idle `cpu` asks for a task, stealing if it must.
    Pick { cpu: u8, commit: Commit },
    /// An idle `cpu` asks for one of the tasks that wait in its queue, out of turn.
    Remove { nth: u8, cpu: u8 },
    /// The task that runs on `cpu` stops running.
    Leave { cpu: u8, how: Leave },
    /// `cpu` wakes one of the sleeping tasks.
    Wake { nth: u8, cpu: u8 },
    /// Time passes for every running task.
    Pass { us: u16 },
    /// The hook asks once whether to preempt, at an arbitrary time.
    Tick { cpu: u8 },
    /// The hook lets the task run for as long as the policy does.
    RunOut { cpu: u8 },
    /// The dispatcher of a central policy serves all idle CPUs.
    Poll,
    /// From here on the hints (queue lengths, idle CPUs) are frozen, or correct again.
    Stale { on: bool },
}

/// What the hook does with a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    Runs,
    Fails,
    /// Queues it first, as a hook that steals several tasks does.
    Queues,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Yield,
    Block,
    Exit,
}

pub(super) fn scenario() -> impl Strategy<Value = Scenario> {
    (1usize..=6, vec(event(), 0..160)).prop_map(|(cpus, events)| Scenario { cpus, events })
}

fn event() -> impl Strategy<Value = Event> {
    let cpu = any::<u8>;
    prop_oneof![
        4 => (cpu(), attrs()).prop_map(|(cpu, attrs)| Event::Spawn { cpu, attrs }),
        6 => (cpu(), commit()).prop_map(|(cpu, commit)| Event::Pick { cpu, commit }),
        1 => (any::<u8>(), cpu()).prop_map(|(nth, cpu)| Event::Remove { nth, cpu }),
        3 => (cpu(), leave()).prop_map(|(cpu, how)| Event::Leave { cpu, how }),
        2 => (any::<u8>(), cpu()).prop_map(|(nth, cpu)| Event::Wake { nth, cpu }),
        1 => (0..200u16).prop_map(|us| Event::Pass { us }),
        2 => cpu().prop_map(|cpu| Event::Tick { cpu }),
        2 => cpu().prop_map(|cpu| Event::RunOut { cpu }),
        1 => Just(Event::Poll),
        1 => any::<bool>().prop_map(|on| Event::Stale { on }),
    ]
}

fn commit() -> impl Strategy<Value = Commit> {
    prop_oneof![6 => Just(Commit::Runs), 1 => Just(Commit::Fails), 1 => Just(Commit::Queues)]
}

fn leave() -> impl Strategy<Value = Leave> {
    prop_oneof![Just(Leave::Yield), Just(Leave::Block), Just(Leave::Exit)]
}

fn attrs() -> impl Strategy<Value = TaskAttrs> {
    let some_us = || proptest::option::of((1..1000u64).prop_map(Ns::from_us));
    (0..3u8, some_us(), some_us()).prop_map(|(class, deadline, expected)| TaskAttrs {
        class: Class(class),
        deadline,
        expected,
        // One more draw would change the sequences that the kit's own tests rely on.
        weight: None,
    })
}
