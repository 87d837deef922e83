//! Hostile contents of the shared memory: nothing panics, and nothing in it is trusted.

use super::memory::EnclaveField;
use super::state_word::{BLOCKED, RUNNABLE};
use super::tracer::StateChange;
use super::{Rt, RtError, enforce, probe};
use crate::identity::Change;
use crate::model::{Group, Kind, Outcome, Phase, QueueId, QueueWord, Transaction};
use crate::{Backend as _, BackendError, EnclaveSpec};
use heddle_core::{Class, CpuId, TaskId};
use heddle_sys::scheduling::{self, Class::Batch, Scheduling};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Makes an enclave of CPU 0, which other tests of this machine may have for a while.
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
fn forged_words_do_not_lead_out_of_bounds() {
    let Some(rt) = enclave() else { return };
    rt.attach().unwrap();
    let me = heddle_sys::thread::id();
    let slot = rt.tracer.admit(me, std::process::id(), (0, 0), 0).unwrap().unwrap();
    let (thread, words) = (TaskId(slot as u32), rt.memory.thread(slot));

    // Slots that do not exist.
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

    // Queues that do not exist.
    words.queue().store(u32::MAX, Relaxed);
    words.consumed().store(words.live().seq().0 as u32, Relaxed);
    rt.memory.default_queue_word().store(u32::MAX, Relaxed);
    let default = rt.default_queue();
    assert_eq!(default, QueueId(0));
    rt.associate(thread, default).unwrap();
    assert_eq!(rt.queue(QueueId(u32::MAX)), QueueWord::default());
    assert!(matches!(rt.destroy_queue(QueueId(u32::MAX)), Err(BackendError::NoQueue(_))));

    // A count smaller than what is taken from it, and a time that never comes.
    let other = rt.create_queue(false).unwrap();
    rt.memory.queue(default.0).unwrap().associated().store(0, Relaxed);
    rt.associate(thread, other).unwrap();
    assert_eq!(rt.queue(default).associated, 0);
    rt.memory.enclave(EnclaveField::Grace).store(u64::MAX, Relaxed);
    words.queue().store(u32::MAX, Relaxed);
    rt.associate_cpu(CpuId(0), other).unwrap();
    rt.detach();
    assert_eq!(rt.enclave().phase, Phase::Waiting);
    rt.attach().unwrap();
    assert_eq!(rt.thread(thread).queue, default, "all begin there");
    assert_eq!(rt.memory.cpu(0).queue().load(Relaxed), other.0, "it is this agent's own");
    rt.tracer.leave(slot, me);
    words.free();
}

const CHILD_ENV: &str = "HEDDLE_TEST_EXEC";

#[test]
#[ignore = "is a part of the test below"]
fn executes_another_program() {
    if std::env::var(CHILD_ENV).is_err() {
        return;
    }
    // The test harness's threads are not the process's first one.
    eprintln!("{}", heddle_sys::thread::id());
    std::io::stdin().read_line(&mut String::new()).unwrap();
    panic!("{}", Command::new("sleep").arg("60").exec());
}

/// A process whose second thread executes another program on command.
struct Program {
    process: Child,
    tid: u32,
}

impl Program {
    fn start() -> Program {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = "rt::hostile::executes_another_program";
        command.args(["--exact", test, "--ignored", "--nocapture"]).env(CHILD_ENV, "1");
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(process.stderr.take().unwrap()).read_line(&mut said).unwrap();
        let tid = said.trim().parse().unwrap();
        assert_ne!(tid, process.id());
        Program { process, tid }
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Until the kernel side of `rt` knows it by its process's number.
    fn execute(&mut self, rt: &Rt) {
        self.process.stdin.take().unwrap().write_all(b"\n").unwrap();
        let start = Instant::now();
        while rt.memory.slot_of(self.pid()).is_none() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A real-time thread that has another number than its words say, as while the kernel loads the program that it
/// executes; that takes as long as the program's file system likes.
fn loading(rt: &Rt) -> (Program, usize) {
    let mut program = Program::start();
    let (tid, pid) = (program.tid, program.pid());
    rt.join(tid).unwrap();
    let slot = rt.memory.slot_of(tid).unwrap();
    let words = rt.memory.thread(slot);
    enforce::promote(&words, tid, Class::LC).unwrap();
    let (policy, began) = (words.policy().load(Relaxed), words.began().load(Relaxed));
    program.execute(rt);
    assert_eq!(rt.memory.slot_of(pid), Some(slot));
    until_asleep(pid);
    // As they were before the kernel reported the program as loaded.
    words.tid().store(tid, Relaxed);
    rt.memory.tids.remove(&pid.to_ne_bytes()).unwrap();
    rt.memory.tids.update(&tid.to_ne_bytes(), &(slot as u32).to_ne_bytes()).unwrap();
    words.policy().store(policy, Relaxed);
    words.began().store(began, Relaxed);
    assert_eq!(scheduling::of(pid).unwrap(), Scheduling::fifo(1));
    (program, slot)
}

fn until_asleep(pid: u32) {
    let wait = || std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap();
    while !wait().contains("nanosleep") {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a process with the unused number `pid`; none if the machine takes it first.
fn process_with_number(pid: u32) -> Option<Child> {
    for _ in 0..200 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        if child.id() == pid {
            return Some(child);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    eprintln!("skipped: the number was taken");
    None
}

#[test]
fn a_thread_whose_program_is_never_loaded_is_given_back_all_the_same() {
    let Some(rt) = enclave() else { return };
    let before = scheduling::mask(0).unwrap();
    let (program, _) = loading(&rt);
    rt.give_back().unwrap();
    assert_eq!(scheduling::of(program.pid()).unwrap(), Scheduling::ORDINARY);
    assert_eq!(scheduling::mask(program.pid()).unwrap(), before);
    assert_eq!(rt.enclave().threads, 0);
}

#[test]
fn a_thread_whose_program_is_never_loaded_is_parked_by_its_new_number() {
    let Some(rt) = enclave() else { return };
    rt.attach().unwrap();
    let (program, slot) = loading(&rt);
    let words = rt.memory.thread(slot);
    // Left unread: reading would park the thread, too.
    let channel = rt.channel(rt.default_queue()).unwrap();
    while channel.next().is_some() {}
    rt.demote(slot, program.tid);
    let parked = std::iter::from_fn(|| rt.next(rt.default_queue())).collect::<Vec<_>>();
    assert_eq!(scheduling::of(program.pid()).unwrap(), Scheduling::IDLE);
    assert_eq!((words.tid().load(Relaxed), rt.memory.slot_of(program.tid)), (program.pid(), None));
    let reported: Vec<_> = parked.iter().map(|m| (m.kind, m.tid)).collect();
    assert_eq!(
        reported,
        [Kind::ThreadCreated, Kind::ThreadBlocked].map(|kind| (kind, program.pid()))
    );
    rt.give_back().unwrap();
    assert_eq!(scheduling::of(program.pid()).unwrap(), Scheduling::ORDINARY);
}

#[test]
fn a_process_with_the_reused_number_of_a_loading_thread_is_left_alone() {
    let Some(rt) = enclave() else { return };
    rt.attach().unwrap();
    let (program, slot) = loading(&rt);
    let words = rt.memory.thread(slot);
    let Some(mut successor) = process_with_number(program.tid) else { return };
    let change = StateChange {
        slot,
        tid: program.tid,
        kind: Kind::ThreadWakeup,
        from: 1 << BLOCKED,
        to: RUNNABLE,
        committed: None,
        info: 0,
    };
    assert!(rt.tracer.report(change));
    // As if it was parked before it executed the program.
    words.policy().store(Scheduling::IDLE.class as u32 + 1, Relaxed);
    let thread = TaskId(slot as u32);
    let mut one = [Transaction::new(thread, program.tid, CpuId(0), words.live().seq())];
    rt.commit(&mut one, Group::Each);
    let now = scheduling::of(successor.id());
    successor.kill().unwrap();
    successor.wait().unwrap();
    assert_eq!(now.unwrap(), Scheduling::ORDINARY);
    assert_eq!(one[0].outcome, Outcome::Again);
    assert_eq!(rt.memory.slot_of(program.pid()), Some(slot));
}

#[test]
fn a_process_with_the_reused_number_of_a_loading_thread_counts_only_for_itself() {
    let Some(rt) = enclave() else { return };
    let (program, slot) = loading(&rt);
    let words = rt.memory.thread(slot);
    let before = words.live();
    let Some(mut successor) = process_with_number(program.tid) else { return };
    scheduling::set(successor.id(), Scheduling { class: Batch, ..Scheduling::ORDINARY }).unwrap();
    successor.kill().unwrap();
    successor.wait().unwrap();
    assert_eq!((words.live(), words.tid().load(Relaxed)), (before, program.tid));
}

#[test]
fn a_process_with_the_reused_number_of_an_ended_loading_process_is_left_alone() {
    let Some(rt) = enclave() else { return };
    let (mut program, slot) = loading(&rt);
    program.end();
    // Start times have a resolution of a hundredth of a second, and numbers never come around that soon except in
    // this test.
    std::thread::sleep(Duration::from_millis(30));
    let Some(mut successor) = process_with_number(program.pid()) else { return };
    rt.demote(slot, program.tid);
    let now = scheduling::of(successor.id());
    successor.kill().unwrap();
    successor.wait().unwrap();
    assert_eq!(now.unwrap(), Scheduling::ORDINARY);
    assert_eq!((rt.enclave().threads, rt.memory.slot_of(program.pid())), (0, None));
}

#[test]
fn a_thread_that_executes_a_program_without_a_free_slot_keeps_its_own() {
    let Some(rt) = enclave() else { return };
    let mut program = Program::start();
    let (tid, pid) = (program.tid, program.pid());
    rt.join(tid).unwrap();
    let slot = rt.memory.slot_of(tid).unwrap();
    enforce::promote(&rt.memory.thread(slot), tid, Class::LC).unwrap();

    // Take all slots that its new number could have.
    let admitted = || rt.tracer.admit(pid, pid, (0, 0), 0).unwrap();
    let taken: Vec<_> = std::iter::from_fn(admitted).collect();
    program.execute(&rt);
    until_asleep(pid);
    let (old, new) = (rt.memory.slot_of(tid), rt.memory.slot_of(pid));
    // What was set before may not be what its words said then.
    let is_new = enforce::is_new(&rt.memory.thread(slot));
    let left = rt.leave(pid);
    for slot in taken {
        rt.tracer.leave(slot, pid);
        rt.memory.thread(slot).free();
    }
    assert_eq!((old, new, is_new), (None, Some(slot), true));
    left.unwrap();
    assert_eq!(scheduling::of(pid).unwrap(), Scheduling::ORDINARY);
}

#[test]
fn a_change_by_an_old_number_does_not_count_as_made() {
    let Some(rt) = enclave() else { return };
    let mut program = Program::start();
    rt.join(program.tid).unwrap();
    let words = rt.memory.thread(rt.memory.slot_of(program.tid).unwrap());
    enforce::promote(&words, program.tid, Class::LC).unwrap();
    program.execute(&rt);
    until_asleep(program.pid());
    enforce::demote(&words, program.tid).unwrap();
    assert!(enforce::is_new(&words));
    rt.give_back().unwrap();
    assert_eq!(scheduling::of(program.pid()).unwrap(), Scheduling::ORDINARY);
}

/// The successor may be the child of a managed thread, which has what was decided here.
#[test]
fn a_wrongly_changed_thread_gets_its_parents_original_settings() {
    let Some(rt) = enclave() else { return };
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped());
    let mut maker = command.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(maker.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let child: u32 = said.trim().parse().unwrap();
    let is = || (scheduling::of(child).unwrap(), scheduling::mask(child).unwrap());
    let before = is();
    rt.join(maker.id()).unwrap();
    let words = rt.memory.thread(rt.memory.slot_of(maker.id()).unwrap());
    for change in [Change::Policy(Scheduling::IDLE), Change::Cpus(words.placed())] {
        // It ends after the call.
        let looks = std::cell::Cell::new(0);
        let is_meant = || looks.replace(1) == 0;
        let inherited = |maker| enforce::as_child_of(&words, change, maker);
        change.make_or_undo(child, is_meant, inherited).unwrap();
    }
    let now = is();
    for pid in [child, maker.id()] {
        Command::new("kill").arg(pid.to_string()).status().unwrap();
    }
    maker.wait().unwrap();
    assert_eq!(now, before);
}

#[test]
fn children_made_while_their_parents_are_given_back_are_given_back_too() {
    let Some(rt) = enclave() else { return };
    let mut command = Command::new("sh");
    let script = "read line; sleep 1000 & echo $!; wait";
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parent = command.spawn().unwrap();
    let before = scheduling::mask(parent.id()).unwrap();
    rt.join(parent.id()).unwrap();
    let mut said = String::new();
    let given = rt.give_back_with(|| {
        let Some(mut orders) = parent.stdin.take() else { return };
        assert_eq!(scheduling::of(parent.id()).unwrap(), Scheduling::ORDINARY);
        orders.write_all(b"\n").unwrap();
        BufReader::new(parent.stdout.take().unwrap()).read_line(&mut said).unwrap();
        // As if the copy was begun before the parent was restored.
        scheduling::set(said.trim().parse().unwrap(), Scheduling::IDLE).unwrap();
    });
    let child: u32 = said.trim().parse().unwrap();
    let now = (scheduling::of(child).unwrap(), scheduling::mask(child).unwrap());
    for pid in [child, parent.id()] {
        Command::new("kill").arg(pid.to_string()).status().unwrap();
    }
    parent.wait().unwrap();
    assert_eq!((given.unwrap(), rt.enclave().threads), (2, 0));
    assert_eq!(now, (Scheduling::ORDINARY, before));
}
