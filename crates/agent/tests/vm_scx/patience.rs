//! What the kernel side counts as waiting: not only parked threads.

use super::testbed::{Holder, Testbed, Worker, until};
use heddle_agent::Backend as _;
use heddle_agent::model::{Phase, State};
use heddle_core::{CpuId, Ns};

/// What an emulated machine needs from one call to the next, and less than a test waits.
const PATIENCE: Ns = Ns::from_ms(3000);

/// Neither a commit nor its repetition gives a CPU.
#[test]
fn a_thread_latched_behind_an_occupant_waits() {
    let Some(testbed) = Testbed::with_patience("behind", &[1], Some(PATIENCE)) else { return };
    let holder = Holder::ordinary(1);
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    until("patience ends", || {
        testbed.scx.recall(CpuId(0));
        testbed.try_one(testbed.txn(task, 0));
        testbed.scx.enclave().phase == Phase::Orphan
    });
    drop(holder);
    worker.moves();
}

#[test]
fn a_thread_offered_to_occupied_cpus_waits() {
    let Some(testbed) = Testbed::with_patience("offered", &[1], Some(PATIENCE)) else { return };
    let holder = Holder::ordinary(1);
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    until("patience ends", || {
        if testbed.state(task) == State::Parked {
            // Refused once the enclave is an orphan.
            let takers = heddle_agent::Takers::Node(CpuId(0));
            testbed.scx.offer(task, testbed.scx.thread(task).tseq, takers);
        }
        testbed.scx.enclave().phase == Phase::Orphan
    });
    drop(holder);
    worker.moves();
}
