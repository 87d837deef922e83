//! The loop against simulated servers and clocks: no test waits or measures time.

use super::{
    Answer, Arrival, Clock, Closed, Invalid, Mix, Op, Plan, Tally, Transport, closed_loop, run,
};
use heddle_core::Ns;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

/// Time that passes only when the loop pauses, or when a test makes it jump.
#[derive(Clone, Default)]
struct FakeClock {
    now: Rc<Cell<u64>>,
    /// The loop itself stalls between these.
    stall: (u64, u64),
}

impl Clock for FakeClock {
    fn now(&mut self) -> Ns {
        Ns(self.now.get())
    }

    fn pause(&mut self, until: Ns) {
        let now = self.now.get();
        let next = if until.0 > now { until.0.min(now + 1_000) } else { now + 1_000 };
        let (from, to) = self.stall;
        self.now.set(if next >= from && next < to { to } else { next });
    }
}

/// A server that works on one request at a time, for `service`, and not at all during `stall`.
struct FakeServer {
    clock: FakeClock,
    service: u64,
    stall: (u64, u64),
    free_at: u64,
    /// Drops every n-th request.
    drop_every: u64,
    seen: u64,
    answers: VecDeque<(u64, u64)>,
}

impl FakeServer {
    fn new(clock: &FakeClock, service: u64) -> FakeServer {
        let clock = clock.clone();
        let answers = VecDeque::new();
        FakeServer { clock, service, stall: (0, 0), free_at: 0, drop_every: 0, seen: 0, answers }
    }
}

impl Transport for FakeServer {
    fn send(&mut self, id: u64, _: &Arrival) -> io::Result<()> {
        self.seen += 1;
        if self.seen.is_multiple_of(self.drop_every) {
            return Ok(());
        }
        let mut start = self.clock.now.get().max(self.free_at);
        if start >= self.stall.0 && start < self.stall.1 {
            start = self.stall.1;
        }
        self.free_at = start + self.service;
        self.answers.push_back((self.free_at, id));
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        let now = self.clock.now.get();
        let ready = self.answers.front().is_some_and(|&(at, _)| at <= now);
        let next = if ready { self.answers.pop_front() } else { None };
        Ok(next.map(|(_, id)| Answer { id, ok: true, service: Some(Ns(self.service)), at: None }))
    }
}

const MS: u64 = 1_000_000;
const PLAN: Plan = Plan { warmup: Ns(0), end: Ns(1_000 * MS), timeout: Ns(1_000 * MS) };

/// One request per millisecond.
fn steady() -> impl Iterator<Item = Arrival> {
    (0u64..).map(|n| Arrival { at: Ns(n * MS), op: Op::Get, key: 0 })
}

fn go(plan: Plan, mut clock: FakeClock, mut server: FakeServer) -> Tally {
    let mut tally = Tally::new(plan.timeout, [None; 3]);
    run(plan, steady(), &mut clock, &mut server, &mut tally, |_, _| true).unwrap();
    tally
}

#[test]
fn a_stall_of_the_server_shows_in_every_request_that_fell_due_meanwhile() {
    let clock = FakeClock::default();
    let mut server = FakeServer::new(&clock, 10_000);
    server.stall = (100 * MS, 200 * MS);
    let tally = go(PLAN, clock, server);
    let get = tally.op(Op::Get);
    assert_eq!((get.sent, get.latency.count(), get.late), (1000, 1000, 0));
    // A tenth of the requests fell due during the stall; half of these waited over 50 ms. A generator
    // that waited for each answer would have counted one slow request.
    assert!(get.latency.percentile(94.0) >= Ns::from_ms(30), "{}", get.latency.percentile(94.0));
    assert!(get.latency.max() >= Ns::from_ms(99));
    assert!(get.latency.p50() < Ns::from_ms(1));
    assert_eq!(tally.problems(), []);
}

#[test]
fn a_stall_of_the_generator_counts_as_latency_and_as_late() {
    let clock = FakeClock { stall: (100 * MS, 200 * MS), ..FakeClock::default() };
    let server = FakeServer::new(&clock, 10_000);
    let tally = go(PLAN, clock, server);
    let get = tally.op(Op::Get);
    assert_eq!(get.latency.count(), 1000);
    assert!(get.latency.max() >= Ns::from_ms(99), "counted from the intended time");
    assert!((95..=100).contains(&get.late), "{} late", get.late);
    assert!(matches!(tally.problems()[..], [Invalid::Late(_)]));
}

#[test]
fn lost_requests_count_with_the_time_limit_and_spoil_the_run() {
    let clock = FakeClock::default();
    let mut server = FakeServer::new(&clock, 10_000);
    server.drop_every = 100;
    let tally = go(PLAN, clock, server);
    let get = tally.op(Op::Get);
    assert_eq!((get.sent, get.lost, get.latency.count()), (1000, 10, 1000));
    assert!(get.latency.percentile(99.5) >= PLAN.timeout);
    assert!(matches!(tally.problems()[..], [Invalid::Lost(_)]));
}

#[test]
fn the_warm_up_does_not_count() {
    let clock = FakeClock::default();
    let mut server = FakeServer::new(&clock, 10_000);
    server.stall = (0, 50 * MS);
    let tally = go(Plan { warmup: Ns::from_ms(500), ..PLAN }, clock, server);
    let get = tally.op(Op::Get);
    assert_eq!((get.sent, get.latency.count()), (500, 500));
    assert!(get.latency.max() < Ns::from_ms(1));
    assert!((499..=501).contains(&get.completed));
}

#[test]
fn overload_ends_in_bounded_time_and_throughput_is_what_the_server_does() {
    let clock = FakeClock::default();
    let now = clock.now.clone();
    let server = FakeServer::new(&clock, 2 * MS);
    let tally = go(PLAN, clock, server);
    let get = tally.op(Op::Get);
    assert_eq!(get.latency.count(), get.sent, "each request is answered or lost");
    assert!((495..=500).contains(&get.completed), "{}", get.completed);
    assert!(now.get() <= (PLAN.end + PLAN.timeout).0 + MS);
}

#[test]
fn a_socket_without_room_delays_requests_and_never_forgets_them() {
    struct Full;
    impl Transport for Full {
        fn send(&mut self, _: u64, _: &Arrival) -> io::Result<()> {
            Err(io::ErrorKind::WouldBlock.into())
        }
        fn receive(&mut self) -> io::Result<Option<Answer>> {
            Ok(None)
        }
    }
    let mut tally = Tally::new(PLAN.timeout, [None; 3]);
    let mut clock = FakeClock::default();
    run(PLAN, steady(), &mut clock, &mut Full, &mut tally, |_, _| true).unwrap();
    assert_eq!((tally.op(Op::Get).unsent, tally.op(Op::Get).sent), (1000, 0));
    assert!(matches!(tally.problems()[..], [Invalid::Crowded(share)] if share == 1.0));
}

#[test]
fn an_interrupt_keeps_what_was_measured_and_marks_it() {
    let mut clock = FakeClock::default();
    let mut server = FakeServer::new(&clock, 10_000);
    let mut tally = Tally::new(PLAN.timeout, [None; 3]);
    let half = |now: Ns, _: &Tally| now < Ns::from_ms(500);
    run(PLAN, steady(), &mut clock, &mut server, &mut tally, half).unwrap();
    assert!((499..=501).contains(&tally.op(Op::Get).latency.count()));
    assert_eq!(tally.problems(), [Invalid::Interrupted]);
}

const CLOSED: Closed =
    Closed { op: Op::Scan, keys: 10, depth: 8, warmup: Ns(10 * MS), duration: Ns(1_000 * MS) };

#[test]
fn a_closed_loop_finds_what_the_server_can_do() {
    let mut clock = FakeClock::default();
    let mut server = FakeServer::new(&clock, 2 * MS);
    let rate = closed_loop(CLOSED, &mut clock, &mut server, || true).unwrap().unwrap();
    assert!((rate - 500.0).abs() < 1.0, "{rate}");
    assert!(server.answers.is_empty(), "nothing is left for the next measurement");
}

#[test]
fn a_closed_loop_ends_if_the_server_is_silent_or_on_request() {
    let mut clock = FakeClock::default();
    let mut server = FakeServer::new(&clock, 100_000 * MS);
    let patient = Closed { duration: Ns(60_000 * MS), ..CLOSED };
    let error = closed_loop(patient, &mut clock, &mut server, || true).unwrap_err();
    assert!(error.to_string().contains("stopped answering"));
    assert_eq!(closed_loop(CLOSED, &mut clock, &mut server, || false).unwrap(), None);
}

#[test]
fn a_closed_loop_held_up_for_its_whole_window_goes_on_until_something_is_counted() {
    let mut clock = FakeClock { stall: (5 * MS, 3_000 * MS), ..FakeClock::default() };
    let mut server = FakeServer::new(&clock, 2 * MS);
    server.stall = (5 * MS, 3_000 * MS);
    let rate = closed_loop(CLOSED, &mut clock, &mut server, || true).unwrap().unwrap();
    assert!((rate - 500.0).abs() < 1.0, "{rate}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// I3: whatever the server does, every due request was answered, lost or never sent.
    #[test]
    fn every_request_is_counted_once(
        seed: u64,
        rate in 500.0..20_000.0f64,
        service in 1_000u64..400_000,
        drop_every in 0u64..20,
        stall in 0u64..100,
    ) {
        let plan = Plan { warmup: Ns::from_ms(20), end: Ns::from_ms(200), timeout: Ns::from_ms(50) };
        let mix: Mix = "get=9,scan=1".parse().unwrap();
        let arrivals = || super::Arrivals::new(seed, rate, mix.clone(), 10);
        let due = arrivals().take_while(|a| a.at < plan.end).filter(|a| a.at >= plan.warmup).count();
        let mut clock = FakeClock { stall: (40 * MS, (40 + stall) * MS), ..FakeClock::default() };
        let mut server = FakeServer::new(&clock, service);
        server.drop_every = drop_every;
        let mut tally = Tally::new(plan.timeout, [None; 3]);
        run(plan, arrivals(), &mut clock, &mut server, &mut tally, |_, _| true).unwrap();
        let of = |op| tally.op(op);
        let recorded = Op::ALL.map(|op| of(op).latency.count() + of(op).unsent).iter().sum::<u64>();
        prop_assert_eq!(recorded, due as u64);
        prop_assert_eq!(tally.counts().due, due as u64);
        prop_assert!(tally.counts().lost <= due as u64);
    }
}
