//! Words of the shared memory as somebody who may write it, and means harm, leaves them: nothing panics, and nothing is believed.

use super::memory::EnclaveField;
use super::{Rt, RtError, probe};
use crate::model::{Group, Outcome, Phase, QueueId, QueueWord, Transaction};
use crate::{Backend as _, BackendError, EnclaveSpec};
use heddle_core::{CpuId, TaskId};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// An enclave of CPU 0, which other tests of this machine may have for a while.
fn enclave() -> Option<Rt> {
    if let Err(missing) = probe() {
        eprintln!("skipped: {missing}");
        return None;
    }
    let name = format!("test-{}-hostile", std::process::id());
    let start = Instant::now();
    loop {
        match Rt::create(&EnclaveSpec::new(&*name, &[0])) {
            Err(RtError::Overlap { .. }) if start.elapsed() < Duration::from_secs(120) => {
                std::thread::sleep(Duration::from_millis(100));
            }
            made => return Some(made.expect("an enclave")),
        }
    }
}

#[test]
fn made_up_words_do_not_lead_out_of_bounds() {
    let Some(rt) = enclave() else { return };
    rt.attach().unwrap();
    let me = heddle_sys::thread::id();
    let slot = rt.tracer.admit(me, std::process::id(), (0, 0), 0).unwrap().unwrap();
    let (thread, words) = (TaskId(slot as u32), rt.memory.thread(slot));

    // Slots that there are not.
    for made_up in [u64::MAX, 1 << 63, rt.memory.slots() as u64 + 1] {
        rt.memory.set_committed_word(0, made_up);
        assert_eq!((rt.cpu(CpuId(0)).current, rt.committed_to(0)), (None, vec![]));
        assert!(!rt.preempt(CpuId(0)));
        let mut one = [Transaction::new(thread, me, CpuId(0), words.live().seq())];
        assert_eq!(rt.commit(&mut one, Group::Each), 0);
        assert_eq!(one[0].outcome, Outcome::NotRunnable);
    }
    rt.memory.tids.update(&me.to_ne_bytes(), &u32::MAX.to_ne_bytes()).unwrap();
    assert!(matches!(rt.leave(me), Err(RtError::NoThread(_))));
    rt.memory.tids.remove(&me.to_ne_bytes()).unwrap();

    // Queues that there are not.
    words.queue().store(u32::MAX, Relaxed);
    words.consumed().store(words.live().seq().0 as u32, Relaxed);
    rt.memory.default_queue_word().store(u32::MAX, Relaxed);
    let default = rt.default_queue();
    assert_eq!(default, QueueId(0));
    rt.associate(thread, default).unwrap();
    assert_eq!(rt.queue(QueueId(u32::MAX)), QueueWord::default());
    assert!(matches!(rt.destroy_queue(QueueId(u32::MAX)), Err(BackendError::NoQueue(_))));

    // A count that is less than what is taken from it, and a time that never comes.
    let other = rt.create_queue(false).unwrap();
    rt.memory.queue(default.0).unwrap().associated().store(0, Relaxed);
    rt.associate(thread, other).unwrap();
    assert_eq!(rt.queue(default).associated, 0);
    rt.memory.enclave(EnclaveField::Grace).store(u64::MAX, Relaxed);
    words.queue().store(u32::MAX, Relaxed);
    rt.detach();
    assert_eq!(rt.enclave().phase, Phase::Waiting);
    rt.attach().unwrap();
    assert_eq!(rt.thread(thread).queue, default, "all begin there");
    rt.tracer.leave(slot, me);
    words.free();
}

const TOLD: &str = "HEDDLE_TEST_EXEC";

#[test]
#[ignore = "is a part of the test below"]
fn executes_another_program() {
    if std::env::var(TOLD).is_err() {
        return;
    }
    // The test harness's threads are not the process's first one.
    eprintln!("{}", heddle_sys::thread::id());
    std::io::stdin().read_line(&mut String::new()).unwrap();
    panic!("{}", Command::new("sleep").arg("60").exec());
}

#[test]
fn a_thread_that_executes_a_program_without_a_free_slot_keeps_its_own() {
    let Some(rt) = enclave() else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "rt::hostile::executes_another_program", "--ignored", "--nocapture"]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut process = command.env(TOLD, "1").spawn().unwrap();
    let mut said = String::new();
    BufReader::new(process.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let (tid, pid) = (said.trim().parse::<u32>().unwrap(), process.id());
    assert_ne!(tid, pid);
    rt.join(tid).unwrap();
    let slot = rt.memory.slot_of(tid).unwrap();

    // All slots that its new number could have.
    let admitted = || rt.tracer.admit(pid, pid, (0, 0), 0).unwrap();
    let taken: Vec<_> = std::iter::from_fn(admitted).collect();
    process.stdin.take().unwrap().write_all(b"\n").unwrap();
    let start = Instant::now();
    while rt.memory.slot_of(pid).is_none() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (old, new) = (rt.memory.slot_of(tid), rt.memory.slot_of(pid));
    let left = rt.leave(pid);
    for slot in taken {
        rt.tracer.leave(slot, pid);
        rt.memory.thread(slot).free();
    }
    let policy = heddle_sys::scheduling::of(pid).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!((old, new), (None, Some(slot)));
    left.unwrap();
    assert_eq!(policy, heddle_sys::scheduling::Scheduling::ORDINARY);
}
