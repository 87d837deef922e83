//! Enclaves that get other CPUs while they live.

use crate::support::{GUARD, Testbed, Worker, create, mask, until};
use heddle_agent::model::{Group, Outcome, State, Transaction};
use heddle_agent::rt::{Rt, RtError};
use heddle_agent::{Backend as _, Moved};
use heddle_core::{CpuId, TaskId};
use heddle_sys::scheduling::{self, Scheduling};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Grows an enclave. Other tests on this machine may have the CPUs for a while.
fn grow(rt: &mut Rt, cpus: &BTreeSet<u32>) {
    let start = Instant::now();
    while let Err(error) = rt.grow(cpus) {
        assert!(matches!(error, RtError::Overlap { .. }) && start.elapsed() < GUARD * 2, "{error}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn commit(rt: &Rt, thread: TaskId) -> Outcome {
    let word = rt.thread(thread);
    let mut one = [Transaction::new(thread, word.tid, CpuId(0), word.tseq)];
    rt.commit(&mut one, Group::Each);
    one[0].outcome
}

fn is_on(worker: &Worker, cpu: u32) -> bool {
    scheduling::mask(worker.tid).unwrap() == mask(&[cpu])
}

#[test]
fn threads_leave_the_cpus_that_an_enclave_gives_up_for_those_that_it_has() {
    let Some(mut testbed) = Testbed::on(&[1]) else { return };
    let [runs, sleeps, pinned] = [(); 3].map(|()| Worker::start());
    let before = scheduling::mask(runs.tid).unwrap();
    scheduling::set_mask(pinned.tid, &mask(&[1])).unwrap();
    let [thread, ..] = [&runs, &sleeps, &pinned].map(|worker| testbed.with(worker));
    runs.spin();
    testbed.next(runs.tid);
    assert_eq!(testbed.commit(thread, 0), Outcome::Committed);
    until("it runs", || testbed.rt.thread(thread).state == State::OnCpu);
    let late = Rt::open(testbed.rt.name()).unwrap();

    grow(&mut testbed.rt, &[0, 1].into());
    assert_eq!(testbed.rt.thread(thread).state, State::OnCpu, "nothing has happened to it");
    let next = Rt::open_on(testbed.rt.name(), &[0].into()).unwrap();
    testbed.rt.detach();
    assert_eq!(testbed.rt.shrink(&[0].into()), Moved { moved: 2, outside: 1 });
    assert_eq!(scheduling::of(runs.tid).unwrap(), Scheduling::IDLE);
    assert!(is_on(&runs, 0) && is_on(&sleeps, 0) && is_on(&pinned, 1));
    drop(create(&[1]));

    late.attach().unwrap();
    assert_eq!(commit(&late, thread), Outcome::NotYours, "an agent that knows only the old CPU");
    late.detach();
    next.attach().unwrap();
    assert_eq!(next.cpus().iter().map(|cpu| cpu.os_id).collect::<Vec<_>>(), [0]);
    assert_eq!(next.thread(thread).state, State::Parked);
    assert_eq!(commit(&next, thread), Outcome::Committed);
    until("it runs", || next.thread(thread).state == State::OnCpu);
    runs.rest();
    assert_eq!(testbed.rt.give_back().unwrap(), 3);
    assert_eq!(scheduling::mask(runs.tid).unwrap(), before);
    assert_eq!(scheduling::mask(pinned.tid).unwrap(), mask(&[1]));
    next.detach();
}

#[test]
fn an_enclave_grows_only_by_cpus_that_are_there_and_free() {
    let Some(mut testbed) = Testbed::on(&[1]) else { return };
    let other = create(&[0]);
    let taken = testbed.rt.grow(&[0, 1].into()).unwrap_err();
    assert!(
        matches!(&taken, RtError::Overlap { cpu: 0, enclave } if enclave == other.name()),
        "{taken}"
    );
    assert!(matches!(testbed.rt.grow(&[4000].into()), Err(RtError::Spec(_))));
    assert!(matches!(testbed.rt.grow(&[].into()), Err(RtError::Spec(_))));
    assert_eq!(testbed.rt.cpus().len(), 1);
    assert_eq!(Rt::open(testbed.rt.name()).unwrap().cpus().len(), 1);
    testbed.rt.grow(&[1].into()).unwrap();
    drop(other);
    grow(&mut testbed.rt, &[0].into());
    assert_eq!(Rt::open(testbed.rt.name()).unwrap().cpus().len(), 2);
}
