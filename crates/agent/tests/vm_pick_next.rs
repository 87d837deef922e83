//! A `pick_next` decides which of the offered threads a CPU takes: in the virtual machine (`make test-vm`). Elsewhere
//! the tests skip with a note.

#[allow(dead_code, reason = "shared with the tests of the backend")]
#[path = "vm_scx/testbed.rs"]
mod testbed;

use heddle_agent::model::{Kind, State};
use heddle_agent::scx::{Scx, ScxError};
use heddle_agent::{Backend, EnclaveSpec, PickNext, Takers};
use heddle_bpf::Fentry;
use heddle_core::{Class, CpuId, Ns, TaskId};
use std::path::Path;
use testbed::{Testbed, Worker, alone, next, until, works};

fn spec(pick_next: Fentry) -> EnclaveSpec {
    let (patience, grace) = (None, Ns(60_000_000_000));
    let pick_next = Some(PickNext::new(pick_next));
    EnclaveSpec { patience, grace, pick_next, ..EnclaveSpec::new("picks", &[1]) }
}

fn testbed(pick_next: impl FnOnce() -> Fentry) -> Option<Testbed> {
    if !works() {
        return None;
    }
    let alone = alone();
    let scx = match Scx::create(&spec(pick_next())) {
        Ok(scx) => scx,
        Err(ScxError::PickNext(error)) => panic!("{error}: {}", error.log),
        Err(error) => panic!("{error}"),
    };
    let testbed = Testbed::of(scx, "picks", alone);
    testbed.scx.attach().unwrap();
    Some(testbed)
}

fn shipped(given: &str) -> Fentry {
    heddle_steer::policy::pick_next(given).unwrap_or_else(|error| panic!("{error}"))
}

/// Instructions that the compiler would not make: what happens with the shared values at r0, which is not null.
fn assembled(body: &[u64]) -> Fentry {
    let head = [
        0x0000_0000_fffc_0a62, // *(u32 *)(r10 - 4) = 0
        0x0000_0000_0000_a2bf, // r2 = r10
        0xffff_fffc_0000_0207, // r2 += -4
        0x0000_0000_0000_1118, // r1 = the shared map
        0,
        0x0000_0001_0000_0085, // r0 = lookup(r1, r2)
        0x0000_0000_0002_0055, // if r0 != 0 goto +2
        0x0000_0000_0000_00b7, // r0 = 0
        0x0000_0000_0000_0095, // exit
    ];
    let tail = [0x0000_0000_0000_00b7, 0x0000_0000_0000_0095];
    let instructions = [&head, body, &tail].concat();
    Fentry { name: "test".into(), instructions, shared: vec![3], maps: vec![] }
}

/// Answers with a number: `*(u32 *)(r0 + 784) = number`.
fn answering(number: u32) -> Fentry {
    assembled(&[u64::from(number) << 32 | 0x0000_0000_0310_0062])
}

/// Four threads of which the first runs on the only CPU, and the others are offered in order.
struct Scene {
    testbed: Testbed,
    _workers: Vec<Worker>,
    tasks: Vec<TaskId>,
}

impl Scene {
    fn new(testbed: Testbed) -> Scene {
        let workers: Vec<Worker> = (0..4).map(|_| Worker::spinning()).collect();
        let tasks: Vec<_> = workers.iter().map(|worker| testbed.join(worker)).collect();
        testbed.run(tasks[0], 0, &workers[0]);
        Scene { testbed, _workers: workers, tasks }
    }

    fn offer(&self, nth: usize) {
        let (scx, task) = (&self.testbed.scx, self.tasks[nth]);
        assert!(scx.offer(task, scx.thread(task).tseq, Takers::Node(CpuId(0))), "{nth}");
    }

    /// Lets the CPU go, and returns which thread it takes next.
    fn taken(&self) -> usize {
        self.testbed.scx.preempt(CpuId(0));
        self.next_taken()
    }

    /// Returns the thread whose message comes next. The one that runs may lose the CPU and the CPU take another before
    /// this is called: what was taken, and in which order, is in the messages.
    fn next_taken(&self) -> usize {
        loop {
            let message = next(&self.testbed.scx);
            if message.kind == Kind::ThreadTaken {
                return self.tasks.iter().position(|task| *task == message.thread).unwrap();
            }
        }
    }
}

#[test]
fn a_cpu_takes_threads_in_the_order_of_hints() {
    let Some(testbed) = testbed(|| shipped("lowest-hint")) else { return };
    let scene = Scene::new(testbed);
    for (nth, hint) in [(1, 30), (2, 10), (3, 20)] {
        scene.testbed.scx.describe(scene.tasks[nth], Class::LC, hint);
        scene.offer(nth);
    }
    let order = [scene.taken(), scene.taken(), scene.taken()];
    assert_eq!(order, [2, 3, 1]);
    let word = scene.testbed.scx.enclave();
    assert_eq!((word.picked, word.declined, word.misjudged), (3, 0, 0), "{word:?}");
    assert!(scene.testbed.scx.traits().picks);
}

#[test]
fn a_cpu_takes_the_thread_that_has_waited_longest() {
    let Some(testbed) = testbed(|| shipped("longest-waiting")) else { return };
    let scene = Scene::new(testbed);
    // They can run since they joined, one after the other.
    for nth in [3, 2, 1] {
        scene.offer(nth);
    }
    let mut waits: Vec<usize> = vec![1, 2, 3];
    waits.sort_by_key(|nth| scene.testbed.scx.thread(scene.tasks[*nth]).runnable_at);
    let order = [scene.taken(), scene.taken(), scene.taken()];
    assert_eq!(order.to_vec(), waits);
}

#[test]
fn wrong_answers_are_counted_and_the_first_thread_is_taken() {
    for answer in [3, u32::MAX - 2] {
        let Some(testbed) = testbed(|| answering(answer)) else { return };
        let scene = Scene::new(testbed);
        (1..4).for_each(|nth| scene.offer(nth));
        assert_eq!(scene.taken(), 1, "{answer}");
        let word = scene.testbed.scx.enclave();
        assert!(word.misjudged > 0 && word.picked == 0, "{answer}: {word:?}");
    }
}

#[test]
fn it_may_scribble_over_all_that_it_sees() {
    // All threads seem to be number -1, their count 16; and the first but one is chosen.
    let mut scribble: Vec<u64> = (0..98).map(|at| 0xffff_ffff_0000_007a | (at * 8) << 16).collect();
    scribble.push(0x0000_0010_000c_0062);
    scribble.push(0x0000_0001_0310_0062);
    let Some(testbed) = testbed(|| assembled(&scribble)) else { return };
    let scene = Scene::new(testbed);
    (1..4).for_each(|nth| scene.offer(nth));
    assert_eq!(scene.taken(), 2);
    assert!(scene.testbed.scx.enclave().picked > 0);
}

#[test]
fn a_cpu_can_be_left_to_the_agent() {
    let Some(testbed) = testbed(|| answering(u32::MAX - 1)) else { return };
    let scene = Scene::new(testbed);
    (1..4).for_each(|nth| scene.offer(nth));
    scene.testbed.scx.preempt(CpuId(0));
    until("the CPU is left", || scene.testbed.scx.enclave().declined > 0);
    assert!((1..4).all(|nth| scene.testbed.scx.thread(scene.tasks[nth]).is_offered()));
    // The agent decides.
    assert!(scene.testbed.scx.revoke(scene.tasks[2]));
    scene.testbed.commit(scene.tasks[2], 0);
    until("it runs", || scene.testbed.state(scene.tasks[2]) == State::OnCpu);
}

#[test]
fn the_order_of_the_offers_is_kept_on_request() {
    let Some(testbed) = testbed(|| answering(u32::MAX)) else { return };
    let scene = Scene::new(testbed);
    (1..4).for_each(|nth| scene.offer(nth));
    assert_eq!([scene.taken(), scene.taken(), scene.taken()], [1, 2, 3]);
    let word = scene.testbed.scx.enclave();
    assert_eq!((word.picked, word.declined, word.misjudged), (0, 0, 0), "{word:?}");
}

#[test]
fn code_that_does_not_verify_is_refused_and_nothing_stays_loaded() {
    if !works() {
        return;
    }
    let _alone = alone();
    // Behind the shared values, and without an end.
    let behind = assembled(&[0x0000_0000_0348_0062]);
    let endless = assembled(&[0x0000_0000_ffff_0005]);
    for code in [behind, endless] {
        let error = Scx::create(&spec(code)).expect_err("refused");
        assert!(matches!(error, ScxError::PickNext(_)), "{error}");
        assert!(error.to_string().starts_with("the pick_next: the kernel refused"), "{error}");
        until("the scheduler is gone", || {
            let state = std::fs::read_to_string("/sys/kernel/sched_ext/state").unwrap();
            state.trim() == "disabled"
        });
        assert!(!Path::new("/sys/fs/bpf/heddle/agent/hd_picks").exists());
    }
}

#[test]
fn each_enclave_has_its_own() {
    let Some(testbed) = testbed(|| shipped("lowest-hint")) else { return };
    let grace = Ns(60_000_000_000);
    let spec = EnclaveSpec { patience: None, grace, ..EnclaveSpec::new("without", &[2]) };
    let other = Scx::create(&spec).unwrap();
    assert!(testbed.scx.traits().picks && !other.traits().picks);
    other.remove().unwrap();
    let other =
        Scx::create(&EnclaveSpec { pick_next: Some(PickNext::new(answering(u32::MAX))), ..spec });
    assert!(other.as_ref().unwrap().traits().picks);
    other.unwrap().remove().unwrap();
}
