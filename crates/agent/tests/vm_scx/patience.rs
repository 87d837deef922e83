//! What the kernel's half counts as waiting: not only who is parked.

use super::bench::{Bench, Holder, Worker, until};
use heddle_agent::Backend as _;
use heddle_agent::model::{Phase, State};
use heddle_agent::scx::News;
use heddle_core::{CpuId, Ns};

/// What an emulated machine needs to get from one call to the next, and less than what a test waits.
const PATIENCE: Ns = Ns::from_ms(3000);

/// Neither a commit nor its repetition is a CPU.
#[test]
fn a_thread_that_is_latched_behind_somebody_else_waits() {
    let Some(bench) = Bench::with_patience("behind", &[1], Some(PATIENCE)) else { return };
    let holder = Holder::ordinary(1);
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    until("patience ends", || {
        bench.scx.recall(CpuId(0));
        bench.try_one(bench.txn(task, 0));
        bench.scx.enclave().phase == Phase::Orphan
    });
    drop(holder);
    worker.moves();
}

#[test]
fn a_thread_that_is_offered_to_cpus_of_somebody_else_waits() {
    let Some(bench) = Bench::with_patience("offered", &[1], Some(PATIENCE)) else { return };
    bench.scx.tell(News { fast_path: true, ..News::default() });
    let holder = Holder::ordinary(1);
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    until("patience ends", || {
        if bench.state(task) == State::Parked {
            // Refused once the enclave is an orphan.
            let _ = bench.scx.offer(task, CpuId(0), bench.scx.thread(task).tseq);
        }
        bench.scx.enclave().phase == Phase::Orphan
    });
    drop(holder);
    worker.moves();
}
