//! `heddle agent` on a changing machine: CPUs that go offline and return, a jumping clock, reused thread
//! numbers. In the guest of `make test-vm`, whose machine the tests may change; elsewhere they are skipped.

#[allow(dead_code, reason = "shared with the tests on the real-time backend")]
#[path = "agent/bench.rs"]
mod bench;
#[path = "agent/program.rs"]
mod program;
#[allow(dead_code, reason = "rooms are for tests on this machine")]
#[path = "steer/room.rs"]
mod room;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use bench::{Bench, Running, all_progress, are_ordinary, threads, until};
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
use serde_json::Value;

/// Not a test: the program that the tests schedule.
#[test]
fn program() {
    program::main();
}

const BACKENDS: [&str; 2] = ["scx", "rt"];

/// Starts a program on CPUs 2 and 3, and waits until its agent has committed some threads. The patience is for
/// an emulated machine that waits for its host.
fn scheduled(bench: &Bench, backend: &str, program: &[String]) -> (Running, Value) {
    let policy = ["--policy", "shinjuku:quantum=4ms", "--patience", "20s"];
    let options =
        [&["run", "--backend", backend, "--cpus", "2-3", "--name", "vm"][..], &policy].concat();
    let agent = bench.start(&options, program);
    let enclave = bench.enclave_when("it works", |enclave| {
        enclave["guardian"]["backend"] == backend
            && enclave["report"]["committed"].as_u64() > Some(20)
    });
    (agent, enclave)
}

/// Ends the program, and asserts that nothing is left of its enclave.
fn end(bench: &Bench, agent: &mut Running) {
    bench.end();
    assert_eq!(agent.exit_code(), 9, "{}", agent.stderr());
    bench.is_clean();
}

fn set_online(cpu: u32, to: &str) {
    fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), to).expect("switched");
}

/// Keeps a CPU offline until dropped.
struct Offline(u32);

impl Offline {
    fn new(cpu: u32) -> Self {
        set_online(cpu, "0");
        Self(cpu)
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        set_online(self.0, "1");
    }
}

#[test]
fn threads_continue_while_a_cpu_goes_offline_and_returns() {
    for backend in BACKENDS {
        let Some(bench) = Bench::in_guest() else { return };
        let (mut agent, enclave) = scheduled(&bench, backend, &bench.program());
        let pid = &enclave["guardian"]["pid"];
        for _ in 0..2 {
            let offline = Offline::new(3);
            all_progress(pid);
            drop(offline);
            all_progress(pid);
        }
        let before = enclave["report"]["committed"].as_u64();
        bench.enclave_when("the agent continues", |enclave| {
            enclave["report"]["committed"].as_u64() > before
        });
        end(&bench, &mut agent);
    }
}

#[test]
fn threads_are_restored_although_a_cpu_is_offline() {
    for backend in BACKENDS {
        let Some(bench) = Bench::in_guest() else { return };
        let (mut agent, enclave) = scheduled(&bench, backend, &bench.program());
        let pid = &enclave["guardian"]["pid"];
        let offline = Offline::new(3);
        all_progress(pid);
        let stopped = bench.run(&["stop", "vm"], &[]);
        assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
        until("all threads have their own CPUs", || {
            threads(pid).iter().all(|thread| thread.policy == 0 && thread.cpus.starts_with("0-"))
        });
        drop(offline);
        until("all threads are ordinary", || are_ordinary(pid));
        end(&bench, &mut agent);
    }
}

/// The wall clock, which jumps; set right on drop.
struct Clock(Timespec);

impl Clock {
    fn jump(&self, seconds: i64) {
        let to = Timespec { tv_sec: self.0.tv_sec + seconds, tv_nsec: 0 };
        clock_settime(ClockId::Realtime, to).expect("set");
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = clock_settime(ClockId::Realtime, self.0);
    }
}

#[test]
fn a_jumping_clock_ends_nothing() {
    const DAY: i64 = 24 * 3600;
    for backend in BACKENDS {
        let Some(bench) = Bench::in_guest() else { return };
        let (mut agent, enclave) = scheduled(&bench, backend, &bench.program());
        let pid = &enclave["guardian"]["pid"];
        let clock = Clock(clock_gettime(ClockId::Realtime));
        let mut committed = 0;
        for days in [1, -1] {
            clock.jump(days * DAY);
            all_progress(pid);
            let now = bench.enclave_when("the agent continues", |enclave| {
                enclave["report"]["committed"].as_u64() > Some(committed)
            });
            committed = now["report"]["committed"].as_u64().expect("a count");
            assert_eq!(now["guardian"]["stage"], enclave["guardian"]["stage"]);
            let said = bench.run(&["status"], &[]);
            assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        }
        end(&bench, &mut agent);
    }
}

/// Limits process numbers, so that they wrap around soon, until dropped.
struct FewNumbers(String);

impl FewNumbers {
    const FILE: &str = "/proc/sys/kernel/pid_max";

    fn new() -> Self {
        let before = fs::read_to_string(Self::FILE).expect("read");
        fs::write(Self::FILE, "420").expect("written");
        Self(before)
    }
}

impl Drop for FewNumbers {
    fn drop(&mut self) {
        let _ = fs::write(Self::FILE, &self.0);
    }
}

#[test]
fn processes_with_reused_thread_numbers_stay_ordinary() {
    for backend in BACKENDS {
        let Some(bench) = Bench::in_guest() else { return };
        let _few = FewNumbers::new();
        let script =
            "while [ ! -e \"$AGENT_TEST_END\" ]; do true | true; /bin/busybox true; done; exit 9";
        let program = ["sh", "-c", script].map(String::from);
        let (mut agent, _) = scheduled(&bench, backend, &program);
        let mut numbers = std::collections::BTreeMap::<u32, u32>::new();
        let begin = Instant::now();
        // Until numbers have wrapped around to foreign processes, between children of the program itself.
        while numbers.values().filter(|times| **times > 2).count() < 10 {
            let mut foreign = Command::new("sleep").arg("0.02").spawn().expect("started");
            let pid = Value::from(foreign.id());
            std::thread::sleep(Duration::from_millis(5));
            let seen = threads(&pid);
            // It may have ended already.
            assert!(seen.is_empty() || are_ordinary(&pid) || threads(&pid).is_empty(), "{seen:?}");
            foreign.wait().expect("ended");
            *numbers.entry(foreign.id()).or_default() += 1;
            assert!(begin.elapsed() < Duration::from_secs(150), "{numbers:?}");
        }
        end(&bench, &mut agent);
    }
}
