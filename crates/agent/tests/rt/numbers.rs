//! Numbers of ended threads that the kernel reuses. The tests choose the number of the next process, as root may.

use crate::support::{Testbed, Worker, mask, until};
use heddle_agent::Backend as _;
use heddle_sys::scheduling::{self, Scheduling};
use std::fs;
use std::process::{Child, Command};

/// A process that ends with its test.
struct Process(Child);

impl Process {
    fn start() -> Process {
        Process(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    /// Starts a process with the unused number `pid`; none if the machine takes it first.
    fn with_number(pid: u32) -> Option<Process> {
        for _ in 0..200 {
            fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
            let process = Process::start();
            if process.0.id() == pid {
                return Some(process);
            }
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_with_a_reused_number_is_left_alone() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let managed = Process::start();
    let pid = managed.0.id();
    testbed.rt.join(pid).unwrap();
    assert_eq!(scheduling::mask(pid).unwrap(), mask(&[1]));
    drop(managed);
    // Start times have a resolution of a hundredth of a second, and numbers never come around that soon except in
    // this test.
    std::thread::sleep(std::time::Duration::from_millis(30));
    let Some(successor) = Process::with_number(pid) else {
        eprintln!("skipped: the number was taken");
        return;
    };
    scheduling::set_mask(pid, &mask(&[0])).unwrap();
    testbed.drain();
    testbed.rt.threads();
    assert_eq!(scheduling::mask(pid).unwrap(), mask(&[0]));
    assert_eq!(scheduling::of(pid).unwrap(), Scheduling::ORDINARY);
    assert_eq!(testbed.rt.give_back().unwrap(), 0);
    assert_eq!(scheduling::mask(pid).unwrap(), mask(&[0]));
    drop(successor);
}

#[test]
fn a_thread_that_has_left_by_itself_unread_gets_its_cpus_back() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let worker = Worker::start();
    let before = scheduling::mask(worker.tid).unwrap();
    let thread = testbed.with(&worker);
    worker.order(b'i');
    // The change is noticed when it next gets a CPU.
    until("it has left", || {
        worker.order(b'n');
        testbed.rt.thread(thread).tid == 0
    });
    assert_eq!(scheduling::mask(worker.tid).unwrap(), mask(&[1]), "no agent has read it");
    testbed.rt.give_back().unwrap();
    assert_eq!(scheduling::mask(worker.tid).unwrap(), before);
}
