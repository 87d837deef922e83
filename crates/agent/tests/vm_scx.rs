//! The sched_ext backend against a kernel that has it: in the virtual machine (`make test-vm`). Elsewhere they skip, and say so.

#[path = "vm_scx/bench.rs"]
mod bench;

use bench::{Bench, Worker, expect};
use heddle_agent::Backend as _;
use heddle_agent::model::{Group, Kind, Outcome, State, Transaction};
use heddle_core::CpuId;

#[test]
fn a_thread_that_opts_in_is_parked_and_runs_when_it_is_committed() {
    let Some(bench) = Bench::new("park", &[1]) else { return };
    let worker = Worker::spinning();
    bench.scx.join(worker.tid).unwrap();
    let created = expect(&bench.scx, Kind::ThreadCreated);
    assert_eq!((created.tid, created.info), (worker.tid, 1));
    assert_eq!(bench.scx.thread(created.thread).state, State::Parked);
    assert!(worker.stands_still(), "a parked thread runs");

    let mut commit = [Transaction::new(created.thread, created.tid, CpuId(0), created.tseq)];
    assert_eq!(bench.scx.commit(&mut commit, Group::Each), 1, "{commit:?}");
    assert_eq!(commit[0].outcome, Outcome::Committed);
    worker.moves();
    assert_eq!(bench.scx.thread(created.thread).state, State::OnCpu);
    assert_eq!(bench.scx.cpu(CpuId(0)).current, Some(created.thread));
}
