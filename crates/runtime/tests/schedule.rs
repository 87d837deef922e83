//! Schedules in virtual time, to the nanosecond: what the runtime decides, against what was worked out by hand. Built
//! by `scripts/test-virtual` only.
#![cfg(virtual_time)]

use heddle_core::{Ns, TaskAttrs};
use heddle_rt::trace::EventKind::{self, Block, Exit, New, Preempted, Start, Wakeup, Yield};
use heddle_rt::virtual_time::{Job, Kind, Step, schedule};

/// Jobs by arrival and service, in microseconds.
fn jobs(all: &[(u64, u64)]) -> Vec<Job> {
    all.iter().map(|&(at, service)| Job::new(Ns::from_us(at), Ns::from_us(service))).collect()
}

/// One that does `steps` from `at` on, in microseconds.
fn job(at: u64, steps: impl Into<Vec<Step>>) -> Job {
    Job { at: Ns::from_us(at), attrs: TaskAttrs::default(), steps: steps.into() }
}

fn run(us: u64) -> Step {
    Step::Run(Ns::from_us(us))
}

/// The schedule of `jobs` on one CPU, the same whether they are threads or futures.
fn same(policy: &str, jobs: &[Job]) -> Vec<heddle_core::Event> {
    let of = |kind| schedule(kind, policy, 1, jobs).unwrap();
    let threads = of(Kind::Threads);
    let futures = of(Kind::Futures);
    let first = threads.iter().zip(&futures).position(|(a, b)| a != b);
    assert!(threads == futures, "{policy}: futures differ from threads from step {first:?} on");
    threads
}

/// The schedule of `jobs` as (microsecond, task, kind).
fn steps(policy: &str, jobs: &[Job]) -> Vec<(u64, u32, EventKind)> {
    let us = |at: Ns| {
        assert!(at.0.is_multiple_of(1000), "{at}");
        at.0 / 1000
    };
    same(policy, jobs).iter().map(|e| (us(e.at), e.who, e.kind)).collect()
}

fn check(policy: &str, jobs: &[Job], expected: &[(u64, u32, EventKind)]) {
    let steps = steps(policy, jobs);
    let first = steps.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(steps, expected, "{policy}, first difference at {first:?}");
}

#[test]
fn fifo_runs_each_to_its_end_in_the_order_of_arrival() {
    check(
        "fifo",
        &jobs(&[(5, 30), (10, 10), (12, 1), (100, 2)]),
        &[
            (5, 0, New),
            (5, 0, Start),
            (10, 1, New),
            (12, 2, New),
            (35, 0, Exit),
            (35, 1, Start),
            (45, 1, Exit),
            (45, 2, Start),
            (46, 2, Exit),
            (100, 3, New),
            (100, 3, Start),
            (102, 3, Exit),
        ],
    );
}

#[test]
fn round_robin_gives_each_a_quantum_in_turn() {
    check(
        "round-robin:quantum=10us",
        &jobs(&[(0, 25), (0, 10), (4, 12)]),
        &[
            (0, 0, New),
            (0, 0, Start),
            (0, 1, New),
            (4, 2, New),
            (10, 0, Preempted),
            (10, 1, Start),
            // Done in the instant in which its quantum ends: that comes first.
            (20, 1, Exit),
            (20, 2, Start),
            (30, 2, Preempted),
            (30, 0, Start),
            (40, 0, Preempted),
            (40, 2, Start),
            (42, 2, Exit),
            (42, 0, Start),
            (47, 0, Exit),
        ],
    );
}

#[test]
fn who_has_outlived_its_quantum_alone_makes_way_for_the_next_arrival_at_once() {
    check(
        "round-robin:quantum=10us",
        &jobs(&[(0, 100), (13, 2), (20, 3), (31, 1)]),
        &[
            (0, 0, New),
            (0, 0, Start),
            // Looked at 10, in vain; here in the middle of what would be its second quantum.
            (13, 1, New),
            (13, 0, Preempted),
            (13, 1, Start),
            (15, 1, Exit),
            (15, 0, Start),
            // Its quantum began anew at 15, so this one waits.
            (20, 2, New),
            (25, 0, Preempted),
            (25, 2, Start),
            (28, 2, Exit),
            (28, 0, Start),
            (31, 3, New),
            (38, 0, Preempted),
            (38, 3, Start),
            (39, 3, Exit),
            (39, 0, Start),
            (106, 0, Exit),
        ],
    );
}

#[test]
fn two_queue_runs_what_is_new_before_what_was_preempted_and_that_for_longer() {
    check(
        "two-queue:quantum=10us,long=30us",
        &jobs(&[(0, 70), (5, 50), (33, 4), (95, 1)]),
        &[
            (0, 0, New),
            (0, 0, Start),
            (5, 1, New),
            (10, 0, Preempted),
            (10, 1, Start),
            (20, 1, Preempted),
            // Its long quantum ends at once when something new arrives: it has had a short one.
            (20, 0, Start),
            (33, 2, New),
            (33, 0, Preempted),
            (33, 2, Start),
            (37, 2, Exit),
            (37, 1, Start),
            (67, 1, Preempted),
            (67, 0, Start),
            (95, 3, New),
            (95, 0, Preempted),
            (95, 3, Start),
            (96, 3, Exit),
            (96, 1, Start),
            (106, 1, Exit),
            (106, 0, Start),
            (125, 0, Exit),
        ],
    );
}

#[test]
fn who_yields_goes_to_the_tail_and_begins_a_new_quantum_even_alone() {
    check(
        "round-robin:quantum=10us",
        &[job(0, [run(8), Step::Yield, run(9)]), job(16, [run(1), Step::Yield, run(1)])],
        &[
            (0, 0, New),
            (0, 0, Start),
            (8, 0, Yield),
            (8, 0, Start),
            // Counted from its start, the quantum would be over at 10 and this one would get in at once.
            (16, 1, New),
            (17, 0, Exit),
            (17, 1, Start),
            (18, 1, Yield),
            (18, 1, Start),
            (19, 1, Exit),
        ],
    );
}

#[test]
fn who_waits_is_queued_in_the_instant_in_which_it_is_woken() {
    let wait = |us| Step::Block(Ns::from_us(us));
    check(
        "fifo",
        &[job(0, [run(3), wait(4), run(5)]), job(1, [run(10), wait(1), run(1)])],
        &[
            (0, 0, New),
            (0, 0, Start),
            (1, 1, New),
            (3, 0, Block),
            (3, 1, Start),
            (7, 0, Wakeup),
            (13, 1, Block),
            (13, 0, Start),
            (14, 1, Wakeup),
            (18, 0, Exit),
            (18, 1, Start),
            (19, 1, Exit),
        ],
    );
}

#[test]
fn timers_are_looked_at_between_tasks_and_where_quanta_end() {
    let sleeper = || job(0, [run(1), Step::Sleep(Ns::from_us(4)), run(1)]);
    check(
        "round-robin:quantum=10us",
        &[sleeper(), job(0, [run(30)])],
        &[
            (0, 0, New),
            (0, 0, Start),
            (0, 1, New),
            (1, 0, Block),
            (1, 1, Start),
            // Due at 5, in the middle of a quantum: no worker looks before its end.
            (11, 0, Wakeup),
            (11, 1, Preempted),
            (11, 0, Start),
            (12, 0, Exit),
            (12, 1, Start),
            (32, 1, Exit),
        ],
    );
    check(
        "fifo",
        &[sleeper()],
        &[(0, 0, New), (0, 0, Start), (1, 0, Block), (5, 0, Wakeup), (5, 0, Start), (6, 0, Exit)],
    );
}

#[test]
fn equal_workloads_have_equal_schedules() {
    let mixed: Vec<Job> = (0..200u64)
        .map(|i| match i % 3 {
            0 => job(i * 7, [run(i % 23 + 1), Step::Block(Ns::from_us(i % 17)), run(9)]),
            1 => job(i * 7, [run(i % 5), Step::Yield, run(i % 31)]),
            _ => job(i * 7, [run(1), Step::Sleep(Ns::from_us(i % 29)), run(2)]),
        })
        .collect();
    for policy in ["fifo", "round-robin:quantum=10us", "work-stealing", "two-queue:quantum=10us"] {
        let first = same(policy, &mixed);
        assert_eq!(first, same(policy, &mixed), "{policy}");
        let exits = first.iter().filter(|e| e.kind == Exit).count();
        assert_eq!(exits, mixed.len(), "{policy}");
    }
}

#[test]
fn a_policy_that_does_not_exist_is_refused() {
    let error = schedule(Kind::Threads, "fastest", 1, &[]).unwrap_err().to_string();
    assert!(error.starts_with("no policy `fastest`"), "{error}");
}
