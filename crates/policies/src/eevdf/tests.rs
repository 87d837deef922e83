//! Shares, debts and deadlines, one operation at a time.

use super::*;
use crate::testkit::{self, PolicyHarness};
use alloc::string::ToString;
use heddle_core::TaskAttrs;

fn us(n: u64) -> Ns {
    Ns::from_us(n)
}

fn harness(params: &str, cpus: usize) -> PolicyHarness<Eevdf> {
    PolicyHarness::of_two_classes(&alloc::format!("eevdf:{params}"), cpus)
}

fn lead(harness: &PolicyHarness<Eevdf>, of: u32, over: u32) -> i64 {
    let vtime = |task| harness.cx(0).task(TaskId(task)).policy.entity.vtime.get();
    fair::ahead(vtime(of), vtime(over))
}

#[test]
fn keeps_the_rules_of_every_policy() {
    testkit::check::<Eevdf>("eevdf:slice=2us,weight=512");
    // The kit's last phase is too short to show fairness at the scale of the defaults.
    let default = || crate::build::<Eevdf>("eevdf").unwrap();
    testkit::check_with(default, testkit::Promises { fair: false });
}

#[test]
fn reads_its_parameters() {
    testkit::check_params::<Eevdf>();
    let error = crate::build::<Eevdf>("eevdf:weight=2000").unwrap_err().to_string();
    assert!(error.contains("a whole number from 1 to 1024"), "{error}");
}

#[test]
fn service_differs_from_the_fair_share_by_at_most_a_slice() {
    let mut harness = harness("slice=4us,weight=256", 1);
    let mut had = [0u64; 4];
    (0..4).for_each(|task| harness.enqueue(0, task, Enqueue::New));
    for round in 1..=1000 {
        had[harness.run(0, us(1)) as usize] += 1;
        for (task, had) in had.into_iter().enumerate() {
            let share = round * [4, 1, 4, 1][task];
            assert!((10 * had).abs_diff(share) <= 40, "{had} us of {round} for task {task}");
        }
    }
}

#[test]
fn a_slice_is_asked_for_and_used_up() {
    let mut harness = harness("slice=10us", 1);
    harness.enqueue(0, 0, Enqueue::New);
    harness.enqueue(0, 2, Enqueue::New);
    assert_eq!(harness.dequeue(0), Some(0));
    harness.set_now(us(4));
    assert_eq!(harness.tick(0, 0, us(4)), Resched::After(us(6)), "at least a slice");
    harness.set_now(us(10));
    assert_eq!(harness.tick(0, 0, us(10)), Resched::Now);
    harness.enqueue(0, 0, Enqueue::Preempted);
    assert_eq!(harness.dequeue(0), Some(2), "the other is owed");
}

#[test]
fn debts_survive_a_sleep() {
    let mut harness = harness("slice=10us", 1);
    harness.enqueue(0, 0, Enqueue::New);
    harness.enqueue(0, 2, Enqueue::New);
    harness.dequeue(0);
    harness.set_now(us(8));
    harness.block(0, 0);
    harness.enqueue(0, 0, Enqueue::Wakeup);
    assert_eq!(lead(&harness, 0, 2), 8_000);
    assert_eq!(harness.dequeue(0), Some(2), "to sleep for a moment does not help");
}

#[test]
fn a_debt_is_limited_to_two_slices() {
    let mut harness = harness("slice=10us", 1);
    harness.enqueue(0, 0, Enqueue::New);
    harness.enqueue(0, 2, Enqueue::New);
    harness.dequeue(0);
    harness.set_now(us(1_000));
    harness.block(0, 0);
    harness.enqueue(0, 0, Enqueue::Wakeup);
    assert_eq!(lead(&harness, 0, 2), 40_000, "20 us ahead of the average of both");
}

#[test]
fn a_task_that_is_owed_time_and_asks_for_less_preempts() {
    let mut harness = harness("slice=10us", 1);
    (0..5).step_by(2).for_each(|task| harness.enqueue(0, task, Enqueue::New));
    harness.dequeue(0);
    harness.block(0, 0);
    assert_eq!(harness.dequeue(0), Some(2));
    harness.set_now(us(9));
    harness.enqueue(0, 0, Enqueue::Wakeup);
    assert_eq!(harness.preempt(0, 0), None, "two slices are not longer than one");
    harness.enqueue(0, 6, Enqueue::New);
    harness.set_now(us(16));
    assert_eq!(harness.preempt(0, 6), None, "its deadline is later");
}

#[test]
fn a_task_that_yields_or_fails_to_commit_gives_up_its_turn() {
    for why in [Enqueue::Yield, Enqueue::CommitFailed] {
        let mut harness = harness("", 1);
        harness.enqueue(0, 0, Enqueue::New);
        harness.enqueue(0, 2, Enqueue::New);
        assert_eq!(harness.dequeue(0), Some(0));
        harness.enqueue(0, 0, why);
        assert_eq!(harness.drain(0), [2, 0], "{why:?}");
    }
}

#[test]
fn a_stolen_task_is_neither_favoured_nor_punished() {
    let mut harness = harness("slice=10us", 2);
    harness.enqueue(0, 0, Enqueue::New);
    (0..100).for_each(|_| _ = harness.run(0, us(10)));
    assert_eq!(harness.steal(1, 0), Some(0));
    harness.enqueue(1, 2, Enqueue::New);
    harness.pass(us(10));
    // It ran on the thief, whose queue learns of it only now.
    harness.enqueue(1, 0, Enqueue::Preempted);
    let turns: alloc::vec::Vec<_> = (0..6).map(|_| harness.run(1, us(10))).collect();
    assert_eq!(turns, [2, 0, 2, 0, 2, 0]);
}

#[test]
fn a_weight_given_to_a_task_goes_before_that_of_its_class() {
    let mut harness = PolicyHarness::<Eevdf>::new("eevdf:slice=4us", 1);
    let weights = [Some(1024), Some(15), None, Some(512)];
    for (task, weight) in (0..).zip(weights) {
        harness.init(task, TaskAttrs { weight, ..TaskAttrs::default() });
        harness.enqueue(0, task, Enqueue::New);
    }
    let mut had = [0u64; 4];
    (0..26_000).for_each(|_| had[harness.run(0, us(1)) as usize] += 1);
    for (had, weight) in had.into_iter().zip(weights) {
        let share = 26_000 * u64::from(weight.unwrap_or(1024)) / (1024 + 15 + 1024 + 512);
        assert!(had.abs_diff(share) <= 12, "{had} us instead of {share}");
    }
}

#[test]
fn with_ticks_it_keeps_the_rules_too() {
    testkit::check::<Eevdf>("eevdf:slice=2us,weight=512,tick=4us");
    assert_eq!(crate::build::<Eevdf>("eevdf:slice=1ms,tick=4ms").unwrap().quantum(), Some(us(100)));
}

#[test]
fn a_slice_ends_at_a_tick() {
    let mut harness = harness("slice=10us,tick=16us", 1);
    harness.enqueue(0, 0, Enqueue::New);
    harness.enqueue(0, 2, Enqueue::New);
    harness.set_now(us(3));
    assert_eq!(harness.dequeue(0), Some(0));
    // A new task asks for half a slice.
    harness.set_now(us(4));
    assert_eq!(harness.tick(0, 0, us(1)), Resched::After(us(12)), "not at 8 us");
    harness.set_now(us(16));
    assert_eq!(harness.tick(0, 0, us(13)), Resched::Now);
    harness.enqueue(0, 0, Enqueue::Preempted);
    assert_eq!(harness.dequeue(0), Some(2));
    harness.set_now(us(30));
    assert_eq!(harness.tick(0, 2, us(14)), Resched::After(us(2)));
}

#[test]
fn with_ticks_a_wakeup_does_not_preempt_a_task_that_is_owed_the_rest_of_its_request() {
    let mut harness = harness("slice=10us,tick=16us", 1);
    harness.enqueue(0, 0, Enqueue::New);
    assert_eq!(harness.dequeue(0), Some(0));
    harness.set_now(us(2));
    harness.enqueue(0, 2, Enqueue::Wakeup);
    assert_eq!(harness.preempt(0, 2), None, "a new task asks for 5 us");
    harness.set_now(us(6));
    harness.enqueue(0, 4, Enqueue::Wakeup);
    assert_eq!(harness.preempt(0, 4), Some(0), "its request is fulfilled");
}

#[test]
fn with_ticks_a_wakeup_preempts_a_lighter_task_that_has_had_more_than_its_share() {
    let mut harness = harness("slice=10us,tick=16us", 1);
    harness.enqueue(0, 1, Enqueue::New);
    harness.enqueue(0, 3, Enqueue::New);
    let running = harness.dequeue(0).unwrap();
    harness.set_now(us(2));
    harness.enqueue(0, 0, Enqueue::Wakeup);
    assert_eq!(harness.preempt(0, 0), Some(0));
    harness.enqueue(0, running, Enqueue::Preempted);
    assert_eq!(harness.dequeue(0), Some(0));
}

#[test]
fn with_ticks_a_debt_is_paid_off_asleep() {
    let lead_after = |nap: u64| {
        let mut harness = harness("slice=10us,tick=16us", 1);
        (0..3).step_by(2).for_each(|task| harness.enqueue(0, task, Enqueue::New));
        assert_eq!(harness.dequeue(0), Some(0));
        harness.set_now(us(8));
        harness.block(0, 0);
        assert_eq!(harness.dequeue(0), Some(2));
        harness.set_now(us(8 + nap));
        harness.enqueue(0, 0, Enqueue::Wakeup);
        lead(&harness, 0, 2)
    };
    assert_eq!([0, 2, 8, 50].map(lead_after), [8_000, 6_000, 0, 0]);
}
