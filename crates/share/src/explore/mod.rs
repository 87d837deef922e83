//! The hand-over under every order of events on one CPU with real-time priorities: the members' own code, a model of
//! the kernel that runs it, and what comes from outside placed at each step in turn.
//!
//! [`Machine::run`] checks in each run that
//! - no member works while another is active, unless one of the two preempts the other, or one stood in for one of
//!   them (I1, the Single Binding Rule),
//! - the next one is active only when the one that left sleeps,
//! - no member takes the CPU while a better one waits, and none is passed over that could run,
//! - while nothing has failed, not all sleep while one waits (I2), though timers would wake it,
//! - it ends, and all that live have done their work.

mod kernel;

use Event::{Arrive, Block, ClearBit, Continue, Join, Kill, ResetWord, Stop, WakeAll};
use kernel::{Event, LOOK_AGAIN, Machine, Outcome};

fn run(ranks: &[u32], work: &[u32], events: &[(u64, Event)]) -> Outcome {
    Machine::run(ranks, work, events)
        .unwrap_or_else(|why| panic!("ranks {ranks:?}, work {work:?}, {events:?}: {why}"))
}

/// The steps of a run in which all that arrives arrives at once.
fn steps(ranks: &[u32], work: &[u32]) -> u64 {
    run(ranks, work, &[]).steps
}

/// Every `n`th step up to `last`, for the event that moves the least; every one if `HEDDLE_EXPLORE` is `all`, which
/// takes minutes.
fn some(n: usize, last: u64) -> impl Iterator<Item = u64> {
    let all = std::env::var_os("HEDDLE_EXPLORE").is_some_and(|what| what == "all");
    (0..=last).step_by(if all { 1 } else { n })
}

/// A waiting time in which the active member ends its unit of work and hands over.
const HAND_OVER: u64 = 200;

/// The steps in which a member that preempts all others becomes active.
const PREEMPT: u64 = 30;

/// All have work in the end, and nothing fails.
fn all_is_well(outcome: &Outcome, done: &[u32]) {
    assert_eq!(outcome.done, done);
    assert_eq!(outcome.stood_in, 0);
}

#[test]
fn a_better_one_that_comes_at_any_step_is_next() {
    let steps = steps(&[1, 0], &[3, 2]);
    for first in 0..=steps {
        for later in some(5, steps) {
            let events = [(first, Arrive(1, 2)), (first + later, Arrive(1, 1))];
            let outcome = run(&[1, 0], &[3, 0], &events);
            all_is_well(&outcome, &[3, 3]);
            assert!(outcome.waits[1] <= HAND_OVER, "{events:?}: {:?}", outcome.waits);
        }
    }
}

/// It has work for much longer than a hand-over takes, and is asked.
#[test]
fn a_busy_one_makes_way_when_it_is_asked() {
    for at in 0..HAND_OVER {
        let outcome = run(&[2, 1], &[500, 0], &[(at, Arrive(1, 2))]);
        all_is_well(&outcome, &[500, 2]);
        assert!(outcome.waits[1] <= HAND_OVER, "{at}: {:?}", outcome.waits);
    }
}

/// One waits for none, and two for each other only.
#[test]
fn one_of_the_first_rank_preempts_the_others_at_any_step() {
    for (ranks, work) in
        [(&[1, 0][..], &[50, 0][..]), (&[1, 1, 0], &[9, 9, 0]), (&[1, 1, 0, 0], &[5, 5, 0, 0])]
    {
        let steps = steps(ranks, work);
        let first = ranks.partition_point(|&rank| rank != 0);
        for at in 0..=steps {
            let arrive = |app| (at + 7 * (app - first) as u64, Arrive(app, 2));
            let events: Vec<_> = (first..ranks.len()).map(arrive).collect();
            let outcome = run(ranks, work, &events);
            let done: Vec<u32> = work.iter().map(|&work| work.max(2)).collect();
            all_is_well(&outcome, &done);
            let most = if ranks.len() - first == 1 { PREEMPT } else { HAND_OVER };
            assert!(outcome.waits[first] <= most, "{events:?}: {:?}", outcome.waits);
        }
    }
}

#[test]
fn equals_that_come_at_any_step_share_the_cpu() {
    for first in 0..=steps(&[0, 0], &[3, 3]) {
        let outcome = run(&[0, 0], &[3, 0], &[(first, Arrive(1, 3))]);
        all_is_well(&outcome, &[3, 3]);
    }
}

#[test]
fn of_three_the_best_is_next_whatever_the_others_do() {
    for ranks in [[2, 1, 0], [1, 1, 0], [1, 0, 0]] {
        let steps = steps(&ranks, &[3, 2, 2]);
        for middle in some(13, steps) {
            for best in 0..=steps {
                let events = [(middle, Arrive(1, 2)), (best, Arrive(2, 2))];
                let outcome = run(&ranks, &[3, 0, 0], &events);
                all_is_well(&outcome, &[3, 2, 2]);
                assert!(outcome.waits[2] <= 2 * HAND_OVER, "{events:?}: {:?}", outcome.waits);
            }
        }
    }
}

/// The broker lets a third one in while two hand the CPU over by yielding.
#[test]
fn a_third_one_joins_at_any_step() {
    let ranks = [2, 1, 0];
    let steps = steps(&ranks, &[3, 2, 2]);
    for joins in 0..=steps {
        for middle in some(11, steps) {
            let events = [(joins, Join(2)), (middle, Arrive(1, 2)), (joins, Arrive(2, 2))];
            all_is_well(&run(&ranks, &[3, 0, 0], &events), &[3, 2, 2]);
        }
    }
}

/// What the broker does so long after a member died; without a delay there is no broker.
fn clean_up(events: &mut Vec<(u64, Event)>, victim: usize, at: u64, delay: Option<u64>) {
    events.push((at, Kill(victim)));
    if let Some(delay) = delay {
        let at = at + delay;
        events.extend([(at, ClearBit(victim)), (at + 1, ResetWord(victim)), (at + 2, WakeAll)]);
    }
}

#[test]
fn of_two_one_goes_on_when_the_other_is_killed_at_any_step() {
    let ranks = [1, 0];
    let steps = steps(&ranks, &[3, 2]);
    for victim in 0..2 {
        for arrives in some(17, steps) {
            for at in 0..=2 * steps {
                for delay in [Some(1), Some(60), None] {
                    let mut events = vec![(arrives, Arrive(1, 2))];
                    clean_up(&mut events, victim, at, delay);
                    let outcome = run(&ranks, &[3, 0], &events);
                    let wait = outcome.waits[1 - victim];
                    assert!(wait <= LOOK_AGAIN + HAND_OVER, "{events:?}: {wait}");
                }
            }
        }
    }
}

#[test]
fn of_three_two_go_on_when_the_third_is_killed_at_any_step() {
    let ranks = [2, 1, 0];
    let steps = steps(&ranks, &[2, 1, 1]);
    for victim in 0..3 {
        for arrives in some(41, steps) {
            for at in 0..=steps + steps / 2 {
                for delay in [Some(1), Some(60), None] {
                    let mut events = vec![(arrives, Arrive(1, 1)), (steps / 4, Arrive(2, 1))];
                    clean_up(&mut events, victim, at, delay);
                    let outcome = run(&ranks, &[2, 0, 0], &events);
                    let wait = (0..3).filter(|&app| app != victim).map(|app| outcome.waits[app]);
                    let wait = wait.max().unwrap();
                    assert!(wait <= 2 * LOOK_AGAIN + HAND_OVER, "{events:?}: {wait}");
                }
            }
        }
    }
}

/// A stopped process leaves the CPU to others at once if they are two, and after they have looked again otherwise.
#[test]
fn others_stand_in_for_one_that_is_stopped_at_any_step() {
    for ranks in [&[1, 0][..], &[2, 1, 0]] {
        let best = ranks.len() - 1;
        let mut work = vec![1; ranks.len()];
        let steps = steps(ranks, &work) + 20;
        work[best] = 0;
        for victim in 0..ranks.len() {
            for at in 0..=steps {
                for pause in [Some(30), Some(5 * LOOK_AGAIN), None] {
                    let mut events = vec![(steps / 3, Arrive(best, 1)), (at, Stop(victim))];
                    events.extend(pause.map(|pause| (at + pause, Continue(victim))));
                    run(ranks, &work, &events);
                }
            }
        }
    }
}

/// The active one and a better one that waits.
#[test]
fn one_stands_in_for_two_that_are_stopped() {
    let ranks = [1, 0, 2];
    let steps = steps(&ranks, &[2, 1, 1]);
    for first in 0..=steps {
        for second in some(13, steps) {
            let arrive = [(20, Arrive(1, 1)), (40, Arrive(2, 1))];
            let events = [arrive[0], arrive[1], (first, Stop(0)), (second, Stop(1))];
            run(&ranks, &[2, 0, 0], &events);
        }
    }
}

#[test]
fn others_stand_in_for_one_that_sleeps_in_the_kernel() {
    for ranks in [&[1, 0][..], &[2, 1, 0], &[0, 1, 2], &[0, 0, 0]] {
        let work = vec![2; ranks.len()];
        let steps = steps(ranks, &work);
        for blocked in 0..ranks.len() {
            for at in 0..=steps {
                for pause in [1, 10, 50, LOOK_AGAIN + 20, 3 * LOOK_AGAIN] {
                    let outcome = run(ranks, &work, &[(at, Block(blocked, pause))]);
                    assert_eq!(outcome.done, work);
                }
            }
        }
    }
}
