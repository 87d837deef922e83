//! Making, refusing, opening, taking over and removing enclaves.

use crate::support::{Testbed, Worker, a_name, alone, create, may, until};
use heddle_agent::model::{Outcome, Phase, State};
use heddle_agent::rt::{Rt, RtError};
use heddle_agent::{Backend as _, BackendError, EnclaveSpec};
use heddle_sys::scheduling::{self, Scheduling};
use std::path::Path;

#[test]
fn an_enclave_leaves_nothing_behind() {
    let _alone = alone();
    if !may() {
        return;
    }
    let rt = create(&[1]);
    let folder = Path::new("/sys/fs/bpf/heddle/agent").join(rt.name());
    assert!(folder.exists() && Rt::enclaves().contains(&rt.name().to_owned()));
    let worker = Worker::start();
    worker.await_sleep();
    rt.join(worker.tid).unwrap();
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::IDLE);
    drop(rt);
    assert!(!folder.exists());
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::ORDINARY);
}

#[test]
fn an_invalid_enclave_is_refused_with_a_reason() {
    let _alone = alone();
    if !may() {
        return;
    }
    let rt = create(&[1]);
    let refused = |name: &str, cpus: &[u32]| Rt::create(&EnclaveSpec::new(name, cpus)).unwrap_err();
    assert!(matches!(refused(&a_name(), &[0, 1]), RtError::Overlap { cpu: 1, .. }));
    assert!(refused(&a_name(), &[1]).to_string().contains(rt.name()));
    assert!(matches!(refused(rt.name(), &[0]), RtError::Exists(_)));
    assert!(matches!(refused("../up", &[0]), RtError::Spec(_)));
    assert!(matches!(refused("", &[0]), RtError::Spec(_)));
    assert!(matches!(refused(&a_name(), &[]), RtError::Spec(_)));
    assert!(matches!(refused(&a_name(), &[4000]), RtError::Spec(_)));
    let unknown = Rt::open("there-is-none").unwrap_err();
    assert!(matches!(&unknown, RtError::NoEnclave(name) if name == "there-is-none"), "{unknown}");
    assert_eq!(Rt::undo("there-is-none").unwrap(), 0);
}

#[test]
fn an_agent_takes_over_from_another() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let worker = Worker::start();
    let thread = testbed.with(&worker);
    worker.spin();
    testbed.next(worker.tid);
    assert!(testbed.commit(thread, 0).is_committed());
    until("it runs", || testbed.rt.thread(thread).state == State::OnCpu);
    let queue = testbed.rt.create_queue(false).unwrap();
    testbed.rt.associate(thread, queue).unwrap();

    let next = Rt::open(testbed.rt.name()).unwrap();
    assert!(matches!(next.attach(), Err(BackendError::WrongPhase(Phase::Active))));
    testbed.rt.detach();
    assert_eq!(next.enclave().phase, Phase::Waiting);
    assert_eq!(testbed.commit(thread, 0), Outcome::NotYours, "it has left");
    next.attach().unwrap();
    assert_eq!(next.enclave().generation, 2);
    assert_eq!(next.threads(), [thread]);
    assert_eq!(next.thread(thread).state, State::OnCpu, "nothing has happened to it");
    assert_eq!(next.thread(thread).queue, next.default_queue());
    worker.rest();
    until("the message reaches the new agent", || next.next(next.default_queue()).is_some());
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::IDLE);
    next.detach();
}

/// Local agents make their queues before they attach.
#[test]
fn queues_of_an_agent_outlive_its_start_and_not_its_successor_s() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    testbed.rt.detach();
    let next = Rt::open(testbed.rt.name()).unwrap();
    let (old, own) = (testbed.rt.create_queue(true).unwrap(), next.create_queue(true).unwrap());
    next.attach().unwrap();
    next.configure_queue(own, true).unwrap();
    assert!(matches!(next.configure_queue(old, true), Err(BackendError::NoQueue(_))));
    next.detach();
    testbed.rt.attach().unwrap();
    assert!(matches!(testbed.rt.configure_queue(own, true), Err(BackendError::NoQueue(_))));
}

#[test]
fn a_process_joins_with_all_its_threads() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let mut sleep = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    assert_eq!(testbed.rt.join_process(sleep.id()).unwrap(), 1);
    assert_eq!(scheduling::of(sleep.id()).unwrap(), Scheduling::IDLE);
    assert_eq!(testbed.rt.give_back().unwrap(), 1);
    assert_eq!(scheduling::of(sleep.id()).unwrap(), Scheduling::ORDINARY);
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    assert!(testbed.rt.join_process(sleep.id()).is_err());
}
