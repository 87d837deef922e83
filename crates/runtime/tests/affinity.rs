//! What a task makes may use all CPUs of the process, and a task is told of all; the worker stays where it is.

mod common;

use common::{in_both_modes, two_workers};
use heddle_rt::no_preempt;
use std::process::Command;

/// CPUs that the calling kernel thread may use, as the kernel has it.
fn of_kernel_thread() -> u32 {
    let mut mask = [0u64; 16];
    // SAFETY: the kernel writes at most as many bytes as it is told.
    let bytes = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr())
    };
    assert!(bytes > 0);
    mask.iter().map(|word| word.count_ones()).sum()
}

/// What `nproc` says.
fn nproc(command: &mut Command) -> u32 {
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

fn parallelism() -> u32 {
    std::thread::available_parallelism().unwrap().get() as u32
}

/// In a process of its own, for the masks of threads: one test cannot disturb another.
#[test]
fn threads_and_children_of_a_task_have_the_cpus_of_the_process() {
    in_both_modes("threads_and_children_of_a_task_have_the_cpus_of_the_process", || {
        let (all, parallel) = (of_kernel_thread(), parallelism());
        let outside = nproc(&mut Command::new("nproc"));
        two_workers("round-robin:quantum=100us").run(move || {
            assert_eq!(parallelism(), parallel, "of the task");
            let thread = || (of_kernel_thread(), parallelism());
            assert_eq!(std::thread::spawn(thread).join().unwrap(), (all, parallel));
            assert_eq!(nproc(&mut Command::new("nproc")), outside, "posix_spawn");
            // With a group to set, std forks.
            use std::os::unix::process::CommandExt as _;
            // SAFETY: no arguments.
            let group = unsafe { libc::getgid() };
            assert_eq!(nproc(Command::new("nproc").gid(group)), outside, "fork");
            let test = format!("test $(nproc) = {outside}\0");
            // SAFETY: a string that ends with a zero.
            assert_eq!(unsafe { libc::system(test.as_ptr().cast()) }, 0);
            no_preempt(|| assert_eq!(of_kernel_thread(), 1, "the worker is pinned still"));
        });
    });
}

#[test]
fn a_thread_that_a_task_makes_is_no_worker() {
    let gs = || {
        let mut base = 0usize;
        // SAFETY: ARCH_GET_GS (0x1004) writes one word.
        unsafe { libc::syscall(libc::SYS_arch_prctl, 0x1004, &raw mut base) };
        base
    };
    two_workers("fifo").run(move || {
        assert_ne!(gs(), 0, "a task is on a worker");
        assert_eq!(std::thread::spawn(gs).join().unwrap(), 0);
    });
}

#[test]
fn a_runtime_that_a_task_starts_has_the_cpus_of_the_process() {
    let workers = |rt: &heddle_rt::Runtime| rt.stats().kernel_threads;
    let rt = two_workers("fifo");
    let all = heddle_rt::RuntimeBuilder::new().build().unwrap();
    let inner = rt.run(|| workers(&heddle_rt::RuntimeBuilder::new().build().unwrap()));
    assert_eq!(inner, workers(&all));
}
