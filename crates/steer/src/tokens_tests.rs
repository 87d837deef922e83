use super::*;
use crate::native::{Decision, NativePolicy, Random, View, input};

/// Four executors.
struct Four(Random);

impl View for Four {
    fn executors(&self) -> u32 {
        4
    }
    fn idle(&mut self, _k: u32) -> bool {
        false
    }
    fn queue_length(&mut self, _k: u32) -> u32 {
        0
    }
    fn now(&mut self) -> u64 {
        0
    }
    fn random(&mut self) -> u32 {
        self.0.number()
    }
    fn cpu(&mut self) -> u32 {
        0
    }
}

const LC: u8 = 1;
const BE: u8 = 2;

fn made() -> (NativePolicy, Refill<NativeMap>) {
    let policy = NativePolicy::shipped("token", "user-offset=0").expect("shipped");
    let map = policy.map(USERS).expect("it has users");
    // The paper's: 35 tokens an epoch.
    let shares = Shares { guaranteed: vec![(LC, 350_000)], best_effort: Some(BE) };
    (policy, Refill::new(map, &shares).expect("both exist"))
}

/// Returns how many of `requests` of `user` are served.
fn send(policy: &mut NativePolicy, user: u8, requests: u32) -> u32 {
    let mut served = 0;
    for _ in 0..requests {
        match policy.decide(&mut input(&[user]), &mut Four(Random::new(0))) {
            Decision::Executor(_) => served += 1,
            decision => assert_eq!(decision, Decision::Drop),
        }
    }
    served
}

#[test]
fn no_request_is_served_without_a_token_and_refusals_are_counted() {
    let (mut policy, refill) = made();
    assert_eq!(send(&mut policy, LC, 5), 0);
    assert_eq!(refill.account(LC), [0, 0, 5]);
}

#[test]
fn a_user_is_served_as_often_as_it_has_tokens() {
    let (mut policy, mut refill) = made();
    refill.epoch(EPOCH);
    assert_eq!(send(&mut policy, LC, 100), 35);
    assert_eq!(refill.account(LC), [0, 35, 65]);
}

#[test]
fn leftover_tokens_of_latency_critical_users_are_shared() {
    let (mut policy, mut refill) = made();
    refill.epoch(EPOCH);
    assert_eq!(send(&mut policy, LC, 10), 10);
    assert_eq!(send(&mut policy, BE, 100), 0, "nothing was left over yet");
    assert_eq!(refill.epoch(EPOCH), 25);
    assert_eq!(send(&mut policy, BE, 100), 25);
    assert_eq!(send(&mut policy, LC, 100), 35, "a share takes nothing from the next epoch");
}

#[test]
fn the_best_effort_user_saves_at_most_ten_epochs() {
    let (mut policy, mut refill) = made();
    for _ in 0..100 {
        refill.epoch(EPOCH);
    }
    assert_eq!(send(&mut policy, BE, 1000), 350);
}

#[test]
fn fractions_of_a_token_are_not_lost() {
    let (_policy, mut refill) = made();
    let tokens: u64 = (0..1000)
        .map(|_| {
            refill.epoch(Ns(1_001));
            refill.account(LC)[0]
        })
        .sum();
    assert_eq!(tokens, 350, "a millisecond's");
}

#[test]
fn requests_beyond_the_tokens_can_be_left_to_the_kernel() {
    let mut policy = NativePolicy::shipped("token", "user-offset=0,pass=1").expect("shipped");
    let decision = policy.decide(&mut input(&[LC]), &mut Four(Random::new(0)));
    assert_eq!(decision, Decision::Pass);
}

#[test]
fn unknown_users_are_refused() {
    let (policy, _refill) = made();
    let error = |guaranteed: &[(u8, u64)], best_effort| {
        let shares = Shares { guaranteed: guaranteed.to_vec(), best_effort };
        Refill::new(policy.map(USERS).expect("it has users"), &shares).map(drop).unwrap_err()
    };
    assert_eq!(error(&[(1, 5), (1, 5)], None), SharesError::Twice(1));
    assert_eq!(error(&[(1, 5)], Some(1)), SharesError::Twice(1));
}

#[test]
fn the_thread_distributes_until_dropped() {
    let (policy, refill) = made();
    let map = policy.map(USERS).expect("it has users");
    let refiller = Refiller::start(refill, Ns::from_us(100)).expect("a thread");
    while map.word(LC.into(), 0).load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    drop(refiller);
}
