//! The end of a runtime: what it gives back, what becomes of its tasks, and what others who still know them see.

mod common;

use common::{alone, assert_success, in_both_modes, runtime, text, two_workers, wait_until};
use heddle_rt::net::TcpListener;
use heddle_rt::sync::{Mutex, mpsc};
use heddle_rt::{Builder, JoinHandle, Runtime, RuntimeBuilder, RuntimeDropped, sleep, spawn};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const FOREVER: Duration = Duration::from_secs(1 << 30);

/// What a process holds of the system.
#[derive(Clone, Copy, Debug)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    mappings: usize,
    virtual_kib: usize,
    resident_kib: usize,
}

impl Holdings {
    fn now() -> Holdings {
        let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let kib = |key: &str| {
            let line = status.lines().find(|l| l.starts_with(key)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        Holdings {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            mappings: std::fs::read_to_string("/proc/self/maps").unwrap().lines().count(),
            virtual_kib: kib("VmSize"),
            resident_kib: kib("VmRSS"),
        }
    }

    /// Whether the process has these threads and descriptors.
    fn is_now(self) -> bool {
        let now = Holdings::now();
        (now.descriptors, now.threads) == (self.descriptors, self.threads)
    }

    /// Fails unless a process that makes and drops runtimes has come back to this, but for what the allocator keeps.
    fn assert_kept(self) {
        let now = Holdings::now();
        assert!(self.is_now(), "{self:?} {now:?}");
        // One table of tasks alone is 64 MiB of address space, and one alternate stack 64 KiB. The C library's
        // allocator may make another arena of 64 MiB, or some, wherever threads meet in it.
        assert!(now.mappings <= self.mappings + 50, "{self:?} {now:?}");
        assert!(now.virtual_kib <= self.virtual_kib + (1 << 20), "{self:?} {now:?}");
        assert!(now.resident_kib <= self.resident_kib + (20 << 10), "{self:?} {now:?}");
    }
}

/// Makes a runtime, uses what it has, and drops it.
fn come_and_go(policy: &str) {
    let runtime = two_workers(policy);
    runtime.run(|| {
        let tasks: Vec<_> = (0..5).map(|i| spawn(move || i)).collect();
        assert_eq!(tasks.into_iter().map(|t| t.join().unwrap()).sum::<i32>(), 10);
        sleep(Duration::from_nanos(1));
    });
}

#[test]
fn a_dropped_runtime_leaves_nothing_behind() {
    let body = || {
        // Another arena of the allocator would look like a table of tasks that was left behind.
        // SAFETY: a plain call; no other thread allocates yet.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        // The process learns its thread-local storage, and the allocator its threads.
        (0..50).for_each(|_| come_and_go("work-stealing"));
        let before = Holdings::now();
        (0..1000).for_each(|_| {
            come_and_go("work-stealing");
            come_and_go("two-queue:quantum=100us");
        });
        before.assert_kept();
    };
    alone("a_dropped_runtime_leaves_nothing_behind", body, assert_success);
}

/// A task that sleeps forever, one that waits for its turn forever, one that computes forever.
fn endless(runtime: &Runtime) -> [JoinHandle<()>; 3] {
    let yields = || {
        loop {
            heddle_rt::yield_now();
        }
    };
    let computes = || {
        loop {
            std::hint::spin_loop();
        }
    };
    [runtime.spawn(|| sleep(FOREVER)), runtime.spawn(yields), runtime.spawn(computes)]
}

fn was_dropped(joined: std::thread::Result<()>) -> bool {
    joined.unwrap_err().is::<RuntimeDropped>()
}

#[test]
fn tasks_that_never_end_do_not_keep_their_runtime() {
    let body = || {
        come_and_go("work-stealing");
        let before = Holdings::now();
        for policy in ["fifo", "work-stealing", "round-robin:quantum=100us"] {
            let runtime = two_workers(policy);
            let handles = endless(&runtime);
            drop(runtime);
            assert!(handles.into_iter().all(|handle| was_dropped(handle.join())));
            // On a busy machine a task that computes may be interrupted only after that.
            wait_until(|| before.is_now());
        }
    };
    alone("tasks_that_never_end_do_not_keep_their_runtime", body, assert_success);
}

#[test]
fn joining_a_task_of_a_dropped_runtime_is_an_error() {
    let others = two_workers("work-stealing");
    let runtime = two_workers("work-stealing");
    let (done, sleeper) = (runtime.spawn(|| 7), runtime.spawn(|| sleep(FOREVER)));
    wait_until(|| done.is_finished());
    // Waiting already: a thread, a task of another runtime, and a task of this one.
    let [first, second, third, fourth, fifth] = [0; 5].map(|_| runtime.spawn(|| sleep(FOREVER)));
    let thread = std::thread::spawn(move || was_dropped(first.join()));
    let task = others.spawn(move || was_dropped(second.join()));
    let own = runtime.spawn(move || drop(third.join()));
    std::thread::sleep(Duration::from_millis(5));
    drop(runtime);
    assert!(thread.join().unwrap());
    assert!(task.join().unwrap());
    assert!(was_dropped(own.join()));
    // Only now.
    assert_eq!(done.join().unwrap(), 7, "it had ended");
    assert!(!sleeper.is_finished());
    let error = sleeper.join().unwrap_err();
    assert!(heddle_rt::panic_message(&*error).contains("runtime was dropped before"));
    assert!(others.run(move || was_dropped(fourth.join())));
    drop(fifth);
}

#[test]
fn a_task_that_joins_itself_panics_with_the_reason() {
    let runtime = runtime("work-stealing");
    let (hand_over, take) = mpsc::channel::<JoinHandle<()>>();
    let (say, hear) = mpsc::channel();
    let task = move || {
        let own = take.recv().unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| drop(own.join()))).unwrap_err();
        say.send(heddle_rt::panic_message(&*panic).to_owned()).unwrap();
    };
    hand_over.send(runtime.spawn(task)).unwrap();
    let text = hear.recv().unwrap();
    assert!(text.contains("a task cannot wait for its own end"), "{text}");
}

/// Handles are joined, asked and dropped, and tasks woken, by threads and by another runtime's tasks, while their
/// runtime ends.
#[test]
fn handles_and_wakers_may_outlive_a_runtime_at_any_moment() {
    let others = two_workers("work-stealing:quantum=100us");
    for round in 0..200u64 {
        let runtime = two_workers("work-stealing:quantum=100us");
        let held = Arc::new(Mutex::new(0));
        let (wake, wait) = mpsc::sync_channel(1);
        let tasks: Vec<JoinHandle<u64>> = (0..40)
            .map(|i| {
                let held = held.clone();
                runtime.spawn(move || {
                    sleep(Duration::from_micros((i * round) % 97 * 10));
                    *held.lock() += 1;
                    i
                })
            })
            .collect();
        let receiver = runtime.spawn(move || wait.iter().count() as u64);
        let check = |i: u64, task: JoinHandle<u64>| match task.join() {
            Ok(value) => assert_eq!(value, i),
            Err(error) => assert!(error.is::<RuntimeDropped>()),
        };
        let mut threads = vec![];
        let mut joiners = vec![];
        for (i, task) in (0..).zip(tasks) {
            match i % 4 {
                0 => threads.push(std::thread::spawn(move || check(i, task))),
                1 => joiners.push(others.spawn(move || check(i, task))),
                2 => threads.push(std::thread::spawn(move || drop(task))),
                _ => joiners.push(others.spawn(move || {
                    let _ = task.is_finished();
                })),
            }
        }
        // Wakes the receiver again and again; ends at the latest when the channel is full and no task receives any
        // more.
        threads.push(std::thread::spawn(move || while wake.try_send(()).is_ok() {}));
        drop(runtime);
        threads.into_iter().for_each(|t| t.join().unwrap());
        joiners.into_iter().for_each(|t| t.join().unwrap());
        drop(receiver.join());
    }
}

#[test]
fn a_runtime_that_its_own_task_drops_ends_behind_it() {
    let runtime = Arc::new(two_workers("work-stealing"));
    let (own, dropped) = (runtime.clone(), Arc::new(AtomicBool::new(false)));
    let set = dropped.clone();
    let (go, wait) = mpsc::sync_channel(0);
    let task = runtime.spawn(move || {
        wait.recv().unwrap();
        drop(own);
        set.store(true, Ordering::Relaxed);
        7
    });
    drop(runtime);
    go.send(()).unwrap();
    assert_eq!(task.join().unwrap(), 7);
    assert!(dropped.load(Ordering::Relaxed));
}

#[test]
fn a_task_in_the_kernel_keeps_its_runtime_until_it_comes_back() {
    let body = || {
        come_and_go("work-stealing");
        let before = Holdings::now();
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let runtime = two_workers("work-stealing");
        let reading = Arc::new(AtomicBool::new(false));
        let set = reading.clone();
        let reader = runtime.spawn(move || {
            set.store(true, Ordering::Relaxed);
            drop(near.read(&mut [0]));
            heddle_rt::yield_now();
        });
        wait_until(|| reading.load(Ordering::Relaxed));
        drop(runtime);
        assert!(was_dropped(reader.join()));
        assert!(Holdings::now().threads > before.threads, "it is still there");
        far.write_all(&[1]).unwrap();
        wait_until(|| Holdings::now().threads == before.threads);
        drop(far);
        // The task's own socket stays with its stack.
        assert_eq!(Holdings::now().descriptors, before.descriptors + 1);
    };
    alone("a_task_in_the_kernel_keeps_its_runtime_until_it_comes_back", body, assert_success);
}

#[test]
fn a_socket_may_outlive_its_runtime() {
    let (first, second) = {
        let runtime = runtime("fifo");
        runtime.run(|| [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap())).into()
    };
    let port = first.local_addr().unwrap();
    drop(first);
    // Closed, and its number was not reused.
    assert!(std::net::TcpListener::bind(port).is_ok());
    runtime("fifo").run(move || drop(second));
}

#[test]
fn shutting_down_waits_for_tasks_and_returns_how_many_were_left() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = ended.clone();
    let runtime = two_workers("work-stealing");
    // A task that sleeps and makes others, which sleep.
    drop(runtime.spawn(move || {
        sleep(Duration::from_millis(5));
        for _ in 0..10 {
            let count = count.clone();
            drop(spawn(move || {
                sleep(Duration::from_millis(5));
                count.fetch_add(1, Ordering::Relaxed);
            }));
        }
    }));
    assert_eq!(runtime.shutdown(FOREVER), 0);
    assert_eq!(ended.load(Ordering::Relaxed), 10);

    let runtime = two_workers("work-stealing");
    let handles = endless(&runtime);
    assert_eq!(runtime.shutdown(Duration::from_millis(20)), 3);
    assert!(handles.into_iter().all(|handle| was_dropped(handle.join())));
}

#[test]
fn a_task_cannot_shut_its_own_runtime_down() {
    let runtime = Arc::new(Mutex::new(Some(runtime("fifo"))));
    let own = runtime.clone();
    let task = runtime.lock().as_ref().unwrap().spawn(move || {
        let taken = own.lock().take().unwrap();
        taken.shutdown(Duration::from_secs(1));
    });
    let error = task.join().unwrap_err();
    let text = heddle_rt::panic_message(&*error);
    assert!(text.contains("cannot shut down its own runtime"), "{text}");
}

#[test]
fn a_runtime_has_the_name_that_it_was_given() {
    let names = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |t: std::fs::DirEntry| std::fs::read_to_string(t.path().join("comm"));
        // A thread may end meanwhile.
        let mut names: Vec<_> = threads.filter_map(|t| name(t.unwrap()).ok()).collect();
        names.retain(|name| name.starts_with("heddle-"));
        names.sort();
        names.concat()
    };
    let body = || {
        let named = |name: &str| RuntimeBuilder::new().name(name).workers(1).build().unwrap();
        let runtime = named("db");
        assert_eq!(runtime.name(), Some("db"));
        assert_eq!(runtime.stats().runtime.as_deref(), Some("db"));
        // The worker has its name before it runs a task; the ticker has one once it runs.
        runtime.run(|| ());
        wait_until(|| names() == "heddle-db-0\nheddle-db-tick\n");
        drop(runtime);
        let runtime = named("orders and returns");
        runtime.run(|| ());
        assert!(names().contains("heddle-orders-0\n"), "{}", names());
    };
    alone("a_runtime_has_the_name_that_it_was_given", body, assert_success);
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn a_result_that_panics_when_dropped_is_named_and_ends_the_process() {
    let body = || {
        let runtime = runtime("work-stealing");
        let late = std::env::var("DROPPED").is_ok_and(|who| who == "by the task");
        let ended = Arc::new(AtomicBool::new(late));
        let wait = ended.clone();
        let task = move || {
            wait_until(|| wait.load(Ordering::Relaxed));
            PanicsOnDrop
        };
        let handle = runtime.run(move || Builder::new().name("report").spawn(task).unwrap());
        if late {
            drop(handle);
        } else {
            ended.store(true, Ordering::Relaxed);
            wait_until(|| handle.is_finished());
            drop(handle);
        }
        sleep(FOREVER);
    };
    for who in ["by the task", "by the handle"] {
        let check = |output: std::process::Output| {
            let text = text(&output);
            assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{who}: {text}");
            assert!(text.contains("on purpose"), "{who}: {text}");
            assert!(
                text.contains("(report), which was not joined, panicked when it was dropped"),
                "{who}: {text}"
            );
            assert!(!text.contains("failed to initiate panic"), "{who}: {text}");
        };
        const NAME: &str = "a_result_that_panics_when_dropped_is_named_and_ends_the_process";
        if common::is_child(NAME) {
            return body();
        }
        check(common::child(NAME).env("DROPPED", who).output().unwrap());
    }
}

#[test]
fn donors_go_on_serving_the_next_runtime() {
    in_both_modes("donors_go_on_serving_the_next_runtime", || {
        (0..20).for_each(|_| come_and_go("work-stealing"));
        let threads = Holdings::now().threads;
        (0..100).for_each(|_| come_and_go("work-stealing"));
        assert_eq!(Holdings::now().threads, threads);
    });
}
