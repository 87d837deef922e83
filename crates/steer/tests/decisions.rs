//! The decisions of every shipped policy: in this process, and in the kernel, where they must be the same.
//! The kernel parts need root and BPF; otherwise they skip, and say so.

use std::sync::atomic::Ordering::Relaxed;

use heddle_bpf::MapView;
use heddle_steer::hook::trial::Trial;
use heddle_steer::native::{Decision, Input, NativePolicy, Random, View, WINDOW, input};
use heddle_steer::policy::{Object, pairs, read, set_params, shipped, shipped_names};
use heddle_steer::{key_hash, native::MAX_EXECUTORS};
use proptest::prelude::*;

/// Executors whose state the test controls.
struct ScriptedView {
    executors: u32,
    idle: Vec<bool>,
    lengths: Vec<u32>,
    cpu: u32,
    random: Random,
}

fn seen(executors: u32) -> ScriptedView {
    let n = executors as usize;
    ScriptedView {
        executors,
        idle: vec![false; n],
        lengths: vec![0; n],
        cpu: 0,
        random: Random::new(7),
    }
}

impl View for ScriptedView {
    fn executors(&self) -> u32 {
        self.executors
    }
    fn idle(&mut self, k: u32) -> bool {
        self.idle[k as usize]
    }
    fn queue_length(&mut self, k: u32) -> u32 {
        self.lengths[k as usize]
    }
    fn now(&mut self) -> u64 {
        0
    }
    fn random(&mut self) -> u32 {
        self.random.number()
    }
    fn cpu(&mut self) -> u32 {
        self.cpu
    }
}

fn native(name: &str, params: &str) -> NativePolicy {
    NativePolicy::shipped(name, params).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn object(name: &str, params: &str) -> Object {
    let mut object = read(shipped(name).expect("shipped")).expect("readable");
    set_params(&mut object, &pairs(params).expect("pairs")).expect("its parameters");
    object
}

/// Returns what `policy` decides about payloads one after the other.
fn decide(
    policy: &mut NativePolicy,
    view: &mut ScriptedView,
    payloads: &[impl AsRef<[u8]>],
) -> Vec<usize> {
    let mut one = |payload: &[u8]| match policy.decide(&mut input(payload), view) {
        Decision::Executor(index) => index,
        other => panic!("{other:?}"),
    };
    payloads.iter().map(|payload| one(payload.as_ref())).collect()
}

fn of_flow(hash: u32) -> Input {
    Input { hash, ..input(&[]) }
}

/// A request of Heddle's own protocol, of which only operation and key matter here.
fn request(operation: u8, key: u64) -> Vec<u8> {
    let mut bytes = vec![b'H', 1, operation];
    bytes.resize(24, 0);
    bytes.extend(key.to_le_bytes());
    bytes
}

const GET: u8 = 1;
const SCAN: u8 = 3;

#[test]
fn round_robin_takes_each_executor_in_turn() {
    let got = decide(&mut native("round-robin", ""), &mut seen(3), &[b"x"; 7]);
    assert_eq!(got, [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn two_instances_of_a_policy_share_nothing() {
    let (mut one, mut other) = (native("round-robin", ""), native("round-robin", ""));
    assert_eq!(decide(&mut one, &mut seen(4), &[b"x"; 3]), [0, 1, 2]);
    assert_eq!(decide(&mut other, &mut seen(4), &[b"x"; 2]), [0, 1]);
    assert_eq!(decide(&mut one, &mut seen(4), &[b"x"; 1]), [3]);
    other.lines()[0].class.store(9, Relaxed);
    assert_eq!(one.lines()[0].class.load(Relaxed), 0);
    drop(one);
    assert_eq!(decide(&mut other, &mut seen(4), &[b"x"; 1]), [2], "and outlive one another");
}

#[test]
fn hash_keeps_each_flow_in_place_and_spreads_flows() {
    let (mut policy, mut view) = (native("hash", ""), seen(4));
    let mut hits = [0; 4];
    for flow in 0..400 {
        let first = policy.decide(&mut of_flow(flow), &mut view);
        assert_eq!(policy.decide(&mut of_flow(flow), &mut view), first);
        let Decision::Executor(index) = first else { panic!("{first:?}") };
        hits[index] += 1;
    }
    assert!(hits.iter().all(|hits| (70..130).contains(hits)), "{hits:?}");
}

#[test]
fn sita_separates_scans_from_gets() {
    let (get, scan) = (request(GET, 1), request(SCAN, 1));
    let got = decide(&mut native("sita", ""), &mut seen(3), &[&get, &scan, &get, &scan, &get]);
    assert_eq!(got, [1, 0, 2, 0, 1]);
    let mut two = native("sita", "reserved=2,type-offset=0,scan=7");
    assert_eq!(
        decide(&mut two, &mut seen(4), &[[7_u8], [7], [7], [1], [1], [1]]),
        [0, 1, 0, 2, 3, 2]
    );
    assert_eq!(decide(&mut native("sita", ""), &mut seen(1), &[&scan, &get]), [0, 0]);
    assert_eq!(native("sita", "").decide(&mut input(b"H"), &mut seen(3)), Decision::Pass);
}

#[test]
fn scan_avoid_finds_the_one_executor_not_running_a_scan() {
    for free in 0..6 {
        let (mut policy, mut view) = (native("scan-avoid", ""), seen(6));
        for k in (0..6).filter(|k| *k != free) {
            policy.lines()[k].class.store(SCAN.into(), Relaxed);
        }
        assert_eq!(decide(&mut policy, &mut view, &[b"x"; 20]), [free; 20]);
    }
}

#[test]
fn scan_avoid_uses_all_free_executors_and_any_if_none_is_free() {
    let (mut policy, mut view) = (native("scan-avoid", "class=2"), seen(3));
    policy.lines()[1].class.store(2, Relaxed);
    policy.lines()[2].class.store(SCAN.into(), Relaxed);
    let got = decide(&mut policy, &mut view, &[b"x"; 100]);
    assert!(got.contains(&0) && got.contains(&2) && !got.contains(&1), "{got:?}");
    (0..3).for_each(|k| policy.lines()[k].class.store(2, Relaxed));
    let got = decide(&mut policy, &mut view, &[b"x"; 100]);
    assert!((0..3).all(|k| got.contains(&k)), "{got:?}");
}

#[test]
fn classify_claims_idle_executors_and_puts_no_get_behind_a_scan() {
    let (get, scan) = (request(GET, 1), request(SCAN, 1));
    let mut policy = native("classify", "spared=1");
    let mut choose = |payloads: &[&Vec<u8>]| decide(&mut policy, &mut seen(4), payloads);
    assert_eq!(choose(&[&scan, &get, &scan]), [1, 0, 2], "the spared one gets no SCAN");
    assert_eq!(choose(&[&get, &get, &get]), [3, 0, 0], "no idle one: behind a GET");
    assert_eq!(choose(&[&scan, &scan, &scan, &scan]), [1, 2, 3, 1], "in turn");
    let work = policy.map("work").expect("it has work");
    let classes = |work: &[u64]| work.iter().map(|class| *class as u32).collect::<Vec<_>>();
    let marked: Vec<u64> = (0..5).map(|k| work.word(k, 0).load(Relaxed)).collect();
    assert_eq!(classes(&marked), [1, 2, 2, 1, 0], "what each is to work on");
    work.word(2, 0).store(0, Relaxed);
    work.word(0, 0).store(0, Relaxed);
    let mut choose = |payloads: &[&Vec<u8>]| decide(&mut policy, &mut seen(4), payloads);
    assert_eq!(choose(&[&scan, &get, &get]), [2, 0, 0]);
    assert_eq!(decide(&mut native("classify", ""), &mut seen(1), &[&scan, &get]), [0, 0]);
    assert_eq!(native("classify", "").decide(&mut input(b"H"), &mut seen(3)), Decision::Pass);
}

#[test]
fn jsq_takes_the_shortest_queue_counting_requests_in_service() {
    let (mut policy, mut view) = (native("jsq", ""), seen(3));
    view.lengths = vec![2, 1, 3];
    assert_eq!(decide(&mut policy, &mut view, &[b"x"; 9]), [1; 9]);
    view.lengths = vec![1, 1, 1];
    policy.lines()[0].class.store(1, Relaxed);
    policy.lines()[2].class.store(1, Relaxed);
    assert_eq!(decide(&mut policy, &mut view, &[b"x"; 9]), [1; 9]);
}

#[test]
fn jiq_takes_an_idle_executor_or_else_the_shortest_queue() {
    let (mut policy, mut view) = (native("jiq", ""), seen(4));
    view.lengths = vec![5, 2, 9, 3];
    assert_eq!(decide(&mut policy, &mut view, &[b"x"; 9]), [1; 9]);
    view.idle[2] = true;
    assert_eq!(decide(&mut policy, &mut view, &[b"x"; 9]), [2; 9]);
}

#[test]
fn class_sends_scans_to_the_last_queue() {
    let (get, scan) = (request(GET, 1), request(SCAN, 1));
    assert_eq!(decide(&mut native("class", ""), &mut seen(2), &[&get, &scan, &get]), [0, 1, 0]);
    assert_eq!(decide(&mut native("class", ""), &mut seen(1), &[&get, &scan]), [0, 0]);
    assert_eq!(native("class", "").decide(&mut input(b""), &mut seen(2)), Decision::Pass);
}

#[test]
fn key_hash_matches_the_home_that_programs_compute() {
    for key in 0..100_u64 {
        let home = key_hash(&key.to_le_bytes()) as usize % 5;
        let got = decide(&mut native("key-hash", ""), &mut seen(5), &[&request(GET, key)]);
        assert_eq!(got, [home]);
    }
    let mut policy = native("key-hash", "key-offset=2,key-size=3");
    assert_eq!(decide(&mut policy, &mut seen(7), &[b"xxabcyy"]), [key_hash(b"abc") as usize % 7]);
    assert_eq!(policy.decide(&mut input(b"xxab"), &mut seen(7)), Decision::Pass);
}

#[test]
fn locality_takes_an_executor_on_the_inputs_cpu_or_else_by_flow() {
    let (mut policy, mut view) = (native("locality", ""), seen(4));
    view.cpu = 5;
    policy.lines()[2].cpu.store(5 + 1, Relaxed);
    for flow in 0..20 {
        assert_eq!(policy.decide(&mut of_flow(flow), &mut view), Decision::Executor(2));
    }
    view.cpu = 6;
    let mut hash = native("hash", "");
    for flow in 0..20 {
        let wanted = hash.decide(&mut of_flow(flow), &mut view);
        assert_eq!(policy.decide(&mut of_flow(flow), &mut view), wanted);
    }
}

fn inputs() -> impl Strategy<Value = Input> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..=WINDOW);
    (bytes, any::<u32>(), any::<u16>(), any::<u16>(), any::<bool>()).prop_map(
        |(bytes, hash, source_port, destination_port, six)| Input {
            hash,
            source_port,
            destination_port,
            family: if six { 6 } else { 4 },
            ..input(&bytes)
        },
    )
}

proptest! {
    #[test]
    fn no_input_makes_a_policy_choose_a_missing_executor(
        inputs in proptest::collection::vec(inputs(), 1..20),
        executors in 1..=MAX_EXECUTORS as u32,
        lengths in proptest::collection::vec(any::<u32>(), MAX_EXECUTORS),
        classes in proptest::collection::vec(any::<u32>(), MAX_EXECUTORS),
        idle: u64,
        cpu in 0..80_u32,
    ) {
        for name in shipped_names() {
            let (mut policy, mut view) = (native(name, ""), seen(executors));
            view.lengths = lengths.clone();
            view.idle = (0..MAX_EXECUTORS).map(|k| idle >> (k % 64) & 1 == 1).collect();
            view.cpu = cpu;
            for (line, class) in policy.lines().iter().zip(&classes) {
                line.class.store(*class, Relaxed);
                line.cpu.store(class % 70, Relaxed);
            }
            for input in &inputs {
                let decision = policy.decide(&mut input.clone(), &mut view);
                prop_assert!(!matches!(decision, Decision::Wrong(_)), "{}: {:?}", name, decision);
            }
        }
    }
}

/// Returns whether programs can be loaded here; prints why not.
fn can_load(test: &str) -> bool {
    match Trial::load(&object("round-robin", ""), 1) {
        Ok(_) => true,
        Err(error) => {
            println!("SKIPPED {test}: {error}");
            false
        }
    }
}

fn number(decision: Decision) -> u32 {
    match decision {
        Decision::Executor(index) => index as u32,
        Decision::Pass => u32::MAX,
        Decision::Drop => u32::MAX - 1,
        Decision::Wrong(index) => index,
    }
}

/// A policy in both places, and its lines.
struct Both {
    native: NativePolicy,
    kernel: Trial,
    lines: Option<MapView>,
    view: ScriptedView,
}

fn both(name: &str, params: &str, executors: u32) -> Both {
    let kernel = Trial::load(&object(name, params), executors)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let lines = kernel.maps().get("hd_lines").map(|map| MapView::new(map).expect("mappable"));
    Both { native: native(name, params), kernel, lines, view: seen(executors) }
}

impl Both {
    fn mark(&self, k: usize, class: u32, cpu: u32) {
        let native = &self.native.lines()[k];
        native.class.store(class, Relaxed);
        native.cpu.store(cpu, Relaxed);
        if let Some(lines) = &self.lines {
            lines.half(k, 0).store(class, Relaxed);
            lines.half(k, 1).store(cpu, Relaxed);
        }
    }

    /// The two answers.
    fn decide(&mut self, input: &Input) -> (u32, u32) {
        let there = self.kernel.decide(input, 1).expect("it runs").choice;
        (number(self.native.decide(&mut input.clone(), &mut self.view)), there)
    }

    fn agree(&mut self, inputs: &[Input]) {
        for input in inputs {
            let (here, there) = self.decide(input);
            assert_eq!(here, there, "{input:?}");
        }
    }
}

/// Requests of both types, of many flows and keys, some of them truncated.
fn traffic() -> Vec<Input> {
    let mut random = Random::new(42);
    let one = |i: u32| {
        let operation = if i.is_multiple_of(5) { SCAN } else { GET };
        let bytes = request(operation, random.number().into());
        let seen =
            if i.is_multiple_of(7) { random.number() as usize % bytes.len() } else { bytes.len() };
        Input { hash: random.number(), ..input(&bytes[..seen]) }
    };
    (0..200).map(one).collect()
}

#[test]
fn the_kernel_and_user_space_decide_alike() {
    if !can_load("the_kernel_and_user_space_decide_alike") {
        return;
    }
    for executors in [1, 2, 3, 6, 64, 1024] {
        for (name, params) in [
            ("round-robin", ""),
            ("hash", ""),
            ("sita", ""),
            ("sita", "reserved=2,type-offset=24,scan=1"),
            ("class", ""),
            ("classify", ""),
            ("classify", "spared=2"),
            ("key-hash", ""),
            ("key-hash", "key-offset=0,key-size=64"),
            ("token", ""),
            ("token", "pass=1"),
        ] {
            both(name, params, executors).agree(&traffic());
        }
    }
}

#[test]
fn tokens_are_spent_alike() {
    if !can_load("tokens_are_spent_alike") {
        return;
    }
    for params in ["user-offset=24", "user-offset=24,spread=0"] {
        let mut both = both("token", params, 3);
        let kernel = MapView::new(&both.kernel.maps()["users"]).expect("mappable");
        let native = both.native.map("users").expect("it has users");
        for user in 0..256 {
            kernel.word(user, 0).store(user as u64 % 3, Relaxed);
            native.word(user, 0).store(user as u64 % 3, Relaxed);
        }
        both.agree(&traffic());
        for user in 0..256 {
            for word in 0..3 {
                let (there, here) = (kernel.word(user, word), native.word(user, word));
                assert_eq!(here.load(Relaxed), there.load(Relaxed), "user {user} word {word}");
            }
        }
    }
}

#[test]
fn lines_are_read_alike() {
    if !can_load("lines_are_read_alike") {
        return;
    }
    for (name, busy) in [("scan-avoid", u32::from(SCAN)), ("jsq", 1)] {
        for free in 0..6 {
            let mut both = both(name, "", 6);
            (0..6).filter(|k| *k != free).for_each(|k| both.mark(k, busy, 0));
            for input in traffic() {
                assert_eq!(both.decide(&input), (free as u32, free as u32), "{name}");
            }
        }
    }
    let mut both = both("locality", "", 6);
    both.agree(&traffic());
    // Every CPU has its executor, so wherever the kernel runs the trial, it is one of these two.
    both.mark(1, 0, 1);
    both.mark(4, 0, 2);
    for input in traffic() {
        let (_, there) = both.decide(&input);
        assert!(there == 1 || there == 4 || there < 6 && rustix::thread::sched_getcpu() > 1);
    }
}

#[test]
fn no_input_makes_a_kernel_policy_choose_a_missing_executor() {
    if !can_load("no_input_makes_a_kernel_policy_choose_a_missing_executor") {
        return;
    }
    for name in shipped_names() {
        let trial = Trial::load(&object(name, ""), 1).expect("it loads");
        let case = (inputs(), 1..=MAX_EXECUTORS as u32);
        let run = |(input, executors): (Input, u32)| {
            trial.set_executors(executors).expect("a number");
            let choice = trial.decide(&input, 1).expect("it runs").choice;
            prop_assert!(choice < executors || choice >= u32::MAX - 1, "{}: {}", name, choice);
            Ok(())
        };
        let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
        proptest::test_runner::TestRunner::new(config).run(&case, run).expect(name);
    }
}
