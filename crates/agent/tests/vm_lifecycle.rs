//! Agents and guardians over sched_ext that die, hang, leave and come back, in the virtual machine (`make
//! test-vm`). Elsewhere the tests skip with a note.
//!
//! Agents are processes of their own, this program again (`agent.rs`), which die at the step that they were given.

#[path = "vm_lifecycle/agent.rs"]
mod agent;
#[path = "vm_scx/testbed.rs"]
#[expect(dead_code, reason = "tests of transactions need more of it")]
mod testbed;
#[path = "vm_lifecycle/workers.rs"]
mod workers;

use agent::{Process, Step};
use heddle_agent::Backend as _;
use heddle_agent::model::Phase;
use heddle_agent::scx::Scx;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testbed::{until, works};
use workers::Workers;

/// Not a test: this program's role when it is started as an agent or guardian.
#[test]
fn a_process_of_these_tests() {
    agent::be_what_was_asked();
}

fn phase(workers: &Workers) -> Phase {
    workers.scx.enclave().phase
}

/// An agent that dies at `step` costs its threads only a moment.
fn dies_at(step: Step) {
    if !works() {
        return;
    }
    let make = if step == Step::BeforeAttach { Workers::hasty } else { Workers::new };
    let workers = make("killed", &[1, 2], 5);
    let agent = Process::agent("killed", step);
    let died = agent.wait_until_killed();
    let took = workers.all_move_after(died);
    println!("killed at {step:?}: all threads progress {} ms later", took.as_millis());
    until("the enclave is an orphan", || phase(&workers) == Phase::Orphan);
    assert!(workers.scx.attach().is_err(), "an orphan takes no agent");
    assert!(workers.scx.is_loaded());
}

#[test]
fn an_agent_that_dies_before_it_attaches_leaves_an_enclave_that_waits_no_longer_than_its_grace() {
    dies_at(Step::BeforeAttach);
}

#[test]
fn an_agent_that_dies_when_it_has_attached() {
    dies_at(Step::AfterAttach);
}

#[test]
fn an_agent_that_dies_while_it_handles_a_message() {
    dies_at(Step::Message(3));
}

#[test]
fn an_agent_that_dies_before_a_commit() {
    dies_at(Step::BeforeCommit(20));
}

#[test]
fn an_agent_that_dies_after_a_commit() {
    dies_at(Step::AfterCommit(20));
}

#[test]
fn an_agent_that_dies_when_it_is_ordered_to_leave() {
    dies_at(Step::BeforeDetach);
}

#[test]
fn an_agent_that_hangs_is_given_up_when_patience_ends() {
    if !works() {
        return;
    }
    let workers = Workers::hasty("hung", &[1, 2], 5);
    let agent = Process::agent("hung", Step::Hang(10));
    agent.wait_for("hangs");
    let took = workers.all_move_after(Instant::now());
    println!("hung: all threads progress {} ms later", took.as_millis());
    until("the enclave is an orphan", || phase(&workers) == Phase::Orphan);
}

#[test]
fn threads_of_an_enclave_that_never_has_an_agent_run_when_its_grace_is_over() {
    if !works() {
        return;
    }
    let workers = Workers::hasty("alone", &[1], 3);
    workers.all_move_after(Instant::now());
    until("the enclave is an orphan", || phase(&workers) == Phase::Orphan);
}

#[test]
fn a_successor_takes_over_without_a_failed_commit_of_its_own() {
    if !works() {
        return;
    }
    let workers = Workers::new("upgrade", &[1, 2], 5);
    let mut old = Process::agent("upgrade", Step::Never);
    for generation in 2..6 {
        workers.all_move_after(Instant::now());
        old.leave();
        let before = workers.scx.enclave();
        assert_eq!((before.phase, before.agent), (Phase::Waiting, None));
        let new = Process::agent("upgrade", Step::Never);
        new.wait_for("attached");
        workers.all_move_after(Instant::now());
        let after = workers.scx.enclave();
        assert_eq!((after.phase, after.generation), (Phase::Active, generation));
        assert!(after.committed > before.committed, "{after:?} after {before:?}");
        println!("failed commits since the old agent left: {}", after.failed - before.failed);
        assert_eq!(after.failed, before.failed);
        old = new;
    }
    assert_eq!(workers.scx.threads().len(), 5, "none is lost");
}

#[test]
fn a_successor_that_dies_when_it_has_attached() {
    if !works() {
        return;
    }
    let workers = Workers::new("heir", &[1, 2], 4);
    let old = Process::agent("heir", Step::Never);
    old.wait_for("attached");
    old.leave();
    let died = Process::agent("heir", Step::AfterAttach).wait_until_killed();
    workers.all_move_after(died);
    until("the enclave is an orphan", || phase(&workers) == Phase::Orphan);
}

#[test]
fn one_enclave_that_loses_its_agent_does_not_touch_the_other() {
    if !works() {
        return;
    }
    let one = Workers::new("one", &[1], 3);
    let two = Workers::beside("two", &[2], 3);
    let (dies, stays) = (Process::agent("one", Step::Never), Process::agent("two", Step::Never));
    dies.wait_for("attached");
    stays.wait_for("attached");
    one.all_move_after(Instant::now());
    let died = dies.kill();
    one.all_move_after(died);
    let before = two.scx.enclave();
    two.all_move_after(Instant::now());
    let after = two.scx.enclave();
    assert_eq!((phase(&one), after.phase), (Phase::Orphan, Phase::Active));
    assert!(after.committed > before.committed, "its agent goes on");
    // A thread that was offered has the number of no CPU until it runs.
    let all_cpus = 0..=u32::from(u16::MAX);
    for (workers, cpu) in [(&one, 1), (&two, 2)] {
        let words: Vec<_> =
            workers.scx.threads().iter().map(|&task| workers.scx.thread(task)).collect();
        let is_here = |at: u32| at == cpu || !all_cpus.contains(&at);
        assert!(words.iter().all(|word| is_here(word.os_cpu)), "{words:?}");
    }
}

#[test]
fn a_thread_of_the_agent_that_ends_is_not_the_agent() {
    if !works() {
        return;
    }
    let workers = Workers::new("parts", &[1], 2);
    let agent = Process::agent("parts", Step::ThreadEnds);
    agent.wait_for("a thread has ended");
    sleep(Duration::from_millis(200));
    assert_eq!(phase(&workers), Phase::Active);
}

#[test]
fn with_the_last_guardian_the_kernel_gives_all_threads_back() {
    if !works() {
        return;
    }
    let workers = Workers::without_enclave(3);
    let guardian = Process::guardian("guarded", 1, &workers.tids());
    guardian.wait_for("guards");
    assert!(Scx::open("guarded").unwrap().is_loaded());
    let killed = guardian.kill();
    let took = workers.all_move_after(killed);
    println!("guardian killed: all threads progress {} ms later", took.as_millis());
    until("the kernel has ended the scheduler", || {
        let state = std::fs::read_to_string("/sys/kernel/sched_ext/state").unwrap();
        state.trim() == "disabled"
    });
    // Remaining pins do not hinder the next enclave.
    let again = Workers::new("again", &[1], 1);
    assert!(again.scx.is_loaded());
}

#[test]
fn an_enclave_whose_guardian_is_gone_lives_on_as_an_orphan_while_there_are_others() {
    if !works() {
        return;
    }
    let other = Workers::new("other", &[2], 1);
    let workers = Workers::without_enclave(3);
    let guardian = Process::guardian("guarded", 1, &workers.tids());
    guardian.wait_for("guards");
    let abandoned = Scx::open("guarded").unwrap();
    let killed = guardian.kill();
    workers.all_move_after(killed);
    until("the enclave is an orphan", || abandoned.enclave().phase == Phase::Orphan);
    assert_eq!(abandoned.guardian(), 0);
    assert!(other.scx.is_loaded());
    // The next process that needs its CPU or name removes it, and gives its threads back.
    let next = Workers::beside("guarded", &[1], 1);
    assert_eq!(next.scx.threads().len(), 1);
}
