//! Several enclaves, and refusals with their error texts.

use super::testbed::{Ran, Testbed, Worker, alone, until, works};
use heddle_agent::model::{Outcome, Phase, State, Transaction};
use heddle_agent::scx::{Missing, OBJECT, Scx, ScxError, probe};
use heddle_agent::{Backend as _, EnclaveSpec};
use heddle_bpf::OpenObject;
use heddle_core::Ns;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// A guardian must start the first agent, which can take longer than the succession of agents.
#[test]
fn a_new_enclave_waits_for_its_first_agent_as_long_as_requested() {
    if !works() {
        return;
    }
    let _alone = alone();
    let (grace, starting) = (Ns::from_ms(1), Some(Ns::from_secs(60)));
    let spec = EnclaveSpec { grace, starting, ..EnclaveSpec::new("first", &[1]) };
    let scx = Scx::create(&spec).unwrap();
    // Several checks of the kernel side, which come every 50 ms.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(scx.enclave().phase, Phase::Waiting);
    scx.attach().unwrap();
    scx.remove().unwrap();
}

#[test]
fn enclaves_share_the_machine_but_no_cpu_and_no_thread() {
    let Some(testbed) = Testbed::new("left", &[1]) else { return };
    let overlap = Scx::create(&EnclaveSpec::new("right", &[0, 1])).unwrap_err();
    assert_eq!(overlap.to_string(), "CPUs [1] are in enclave `left` already");
    let exists = Scx::create(&EnclaveSpec::new("left", &[2])).unwrap_err();
    assert_eq!(exists.to_string(), "there is an enclave `left` already");
    let none = Scx::open("middle").unwrap_err();
    assert_eq!(none.to_string(), "there is no enclave `middle`");
    for (name, cpus, text) in [
        ("a b", &[2_u32][..], "not a valid enclave name"),
        ("x", &[], "needs a CPU"),
        ("x", &[999], "no CPU 999"),
    ] {
        let error = Scx::create(&EnclaveSpec::new(name, cpus)).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }

    let right = Scx::create(&EnclaveSpec::new("right", &[2])).unwrap();
    assert_eq!(Scx::names().unwrap(), ["left", "right"]);
    right.attach().unwrap();
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    assert_eq!(right.thread(task), Default::default(), "another's thread");
    // A thread of one enclave to the CPU of the other.
    let mut one = [testbed.txn(task, 0)];
    right.commit(&mut one, heddle_agent::model::Group::Each);
    assert_eq!(one[0].outcome, Outcome::NotYours);
    assert_eq!(testbed.state(task), State::Parked);

    // A second handle, as a succeeding agent has it.
    let again = Scx::open("right").unwrap();
    assert_eq!(again.cpus()[0].os_id, 2);
    again.join(worker.tid).unwrap();
    until("it has moved", || again.threads().len() == 1 && testbed.scx.threads().is_empty());
    let task = again.threads()[0];
    until("it is parked", || again.thread(task).state == State::Parked);
    let (word, before) = (again.thread(task), Ran::of(&again, task, &worker));
    let mut one = [Transaction::new(task, word.tid, heddle_core::CpuId(0), word.tseq)];
    assert_eq!(again.commit(&mut one, heddle_agent::model::Group::Each), 1);
    until("it has run", || Ran::of(&again, task, &worker) != before);
    assert_eq!(right.remove().unwrap(), 1);
    worker.moves();
    assert_eq!(Scx::names().unwrap(), ["left"]);
    assert!(testbed.scx.is_loaded());
}

#[test]
fn another_scheduler_is_named() {
    if !works() {
        return;
    }
    let _alone = alone();
    let mut other = OpenObject::read("other", OBJECT).unwrap();
    other
        .set_data("hd_ops", |data| {
            let at = data.windows(7).position(|seven| seven == b"heddle\0").expect("its name");
            data[at..at + 5].copy_from_slice(b"other");
            data[at + 5] = 0;
        })
        .unwrap();
    let mut other = other.load().unwrap();
    let link = other.attach_operations("hd_ops").unwrap();
    assert_eq!(probe(), Err(Missing::Another("other".into())));
    let error = Scx::create(&EnclaveSpec::new("x", &[1])).unwrap_err();
    assert_eq!(error.to_string(), "another sched_ext scheduler is loaded: `other`; end it first");
    drop((link, other));
    until("the other is gone", || probe().is_ok());
}

#[test]
fn the_capability_that_is_missing_is_named() {
    if !works() {
        return;
    }
    // Of this thread only.
    let before = capabilities(None).unwrap();
    for (without, name) in
        [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::SYS_NICE, "CAP_SYS_NICE")]
    {
        let effective = before.effective - without;
        set_capabilities(None, CapabilitySets { effective, ..before }).unwrap();
        let error = Scx::create(&EnclaveSpec::new("x", &[1])).err().or(Some(ScxError::NoRoom(0)));
        set_capabilities(None, before).unwrap();
        assert!(error.unwrap().to_string().contains(name));
    }
}
