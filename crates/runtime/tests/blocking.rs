//! Calls that block in the kernel do not hold up other tasks.

mod common;

use common::{policies, runtime, two_workers};
use heddle_rt::{Runtime, blocking, no_preempt, spawn, yield_now};
use std::cell::UnsafeCell;
use std::io::{PipeReader, Read, Write, pipe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Reads one byte from a pipe whose other end only another task of the same worker writes to.
fn read_what_another_task_writes(rt: &Runtime, read: fn(&mut PipeReader) -> u8) {
    let byte = rt.run(move || {
        let (mut from, mut to) = pipe().unwrap();
        let reader = spawn(move || read(&mut from));
        // The reader comes first in every queue, so it blocks before this task goes on.
        yield_now();
        spawn(move || to.write_all(&[42]).unwrap()).join().unwrap();
        reader.join().unwrap()
    });
    assert_eq!(byte, 42);
}

fn read_byte(from: &mut PipeReader) -> u8 {
    let mut byte = [0];
    from.read_exact(&mut byte).unwrap();
    byte[0]
}

#[test]
fn announced_blocking_gives_the_worker_to_others() {
    for policy in &policies() {
        let rt = runtime(policy);
        for _ in 0..50 {
            read_what_another_task_writes(&rt, |from| blocking(|| read_byte(from)));
        }
        assert!(rt.stats().kernel_threads <= 20, "spares are used again: {:?}", rt.stats());
    }
}

#[test]
fn unannounced_blocking_is_noticed() {
    for policy in &policies() {
        let rt = runtime(policy);
        for _ in 0..10 {
            read_what_another_task_writes(&rt, read_byte);
        }
        assert!(rt.stats().takeovers >= 1, "{policy}: {:?}", rt.stats());
    }
}

#[test]
fn many_block_at_once() {
    let rt = two_workers("work-stealing");
    rt.run(|| {
        for round in 0..5 {
            let (readers, writers): (Vec<_>, Vec<_>) = (0..20)
                .map(|i| {
                    let (mut from, to) = pipe().unwrap();
                    let announced = (i + round) % 4 != 0;
                    let read = move || {
                        if announced {
                            blocking(|| read_byte(&mut from))
                        } else {
                            read_byte(&mut from)
                        }
                    };
                    (spawn(read), to)
                })
                .unzip();
            yield_now();
            for (i, mut to) in writers.into_iter().enumerate() {
                to.write_all(&[i as u8]).unwrap();
            }
            for (i, reader) in readers.into_iter().enumerate() {
                assert_eq!(reader.join().unwrap(), i as u8);
            }
        }
    });
}

/// The C library's mutex: who waits for it sleeps in the kernel.
struct KernelMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is for several threads.
unsafe impl Sync for KernelMutex {}
// SAFETY: nothing here depends on the thread that made it.
unsafe impl Send for KernelMutex {}

impl KernelMutex {
    const fn new() -> KernelMutex {
        KernelMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: an initialised mutex that does not move while it is in use; the same thread, a task, unlocks it.
        unsafe {
            libc::pthread_mutex_lock(self.0.get());
            let result = f();
            libc::pthread_mutex_unlock(self.0.get());
            result
        }
    }
}

#[test]
fn a_kernel_lock_held_by_a_preempted_task_does_not_stop_its_worker() {
    let rt = runtime("round-robin:quantum=50us");
    let total = Arc::new((KernelMutex::new(), AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let total = total.clone();
            rt.spawn(move || {
                for _ in 0..20 {
                    total.0.with(|| {
                        let seen = total.1.load(Ordering::Relaxed);
                        for _ in 0..100_000 {
                            std::hint::spin_loop();
                        }
                        total.1.store(seen + 1, Ordering::Relaxed);
                    });
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(total.1.load(Ordering::Relaxed), 60);
}

#[test]
fn blocking_nests_and_goes_with_no_preempt() {
    let rt = two_workers("work-stealing:quantum=100us");
    let sum: u64 = rt.run(|| {
        let nested = |i: u64| {
            move || {
                let inner = no_preempt(|| blocking(|| no_preempt(|| blocking(|| i))));
                // Parks inside, and so comes back on another worker.
                blocking(|| inner + spawn(move || i).join().unwrap())
            }
        };
        let tasks: Vec<_> = (0..200).map(|i| spawn(nested(i))).collect();
        tasks.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(sum, 2 * (0..200).sum::<u64>());
    assert_eq!(blocking(|| 1), 1, "in an ordinary thread");
}

#[test]
fn a_panic_inside_blocking_leaves_the_worker_in_order() {
    let rt = runtime("fifo");
    for _ in 0..20 {
        assert!(rt.run(|| spawn(|| blocking(|| panic!("inside"))).join()).is_err());
    }
    assert_eq!(rt.run(|| spawn(|| 5).join().unwrap()), 5);
}

/// Keeps the worker's queue filled, so that preemptions are sent, while `call` runs in a task beside it.
fn beside_a_busy_task(call: impl Fn(u32) + Send + Sync + 'static) {
    let rt = runtime("round-robin:quantum=50us");
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let busy = rt.spawn(move || common::spin_until(|| seen.load(Ordering::Relaxed)));
    rt.spawn(move || (0..20).for_each(call)).join().unwrap();
    stop.store(true, Ordering::SeqCst);
    busy.join().unwrap();
}

/// Calls `then` in an ordinary thread after a while.
fn later<T: Send + 'static>(then: impl FnOnce() -> T + Send + 'static) {
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(3));
        then()
    });
}

#[test]
fn reads_are_not_interrupted_by_preemption() {
    use std::os::fd::AsRawFd;
    beside_a_busy_task(|i| {
        let (from, mut to) = pipe().unwrap();
        later(move || to.write_all(&[i as u8]).unwrap());
        let mut byte = 0u8;
        // SAFETY: one writable byte. The raw call: the standard library would hide an EINTR.
        let n = unsafe { libc::read(from.as_raw_fd(), (&raw mut byte).cast(), 1) };
        assert_eq!((n, byte), (1, i as u8), "{}", std::io::Error::last_os_error());
    });
}

#[test]
fn receiving_and_waiting_for_children_are_not_interrupted() {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;
    beside_a_busy_task(|i| {
        let (a, b) = UnixDatagram::pair().unwrap();
        later(move || b.send(&[i as u8]).unwrap());
        let mut byte = 0u8;
        // SAFETY: one writable byte.
        let n = unsafe { libc::recv(a.as_raw_fd(), (&raw mut byte).cast(), 1, 0) };
        assert_eq!((n, byte), (1, i as u8), "{}", std::io::Error::last_os_error());
    });
    beside_a_busy_task(|_| {
        let mut child = std::process::Command::new("sleep").arg("0.003").spawn().unwrap();
        let (id, mut info) = (child.id(), std::mem::MaybeUninit::<libc::siginfo_t>::zeroed());
        let options = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: our own child; the description is writable. The raw call: `Child::wait` would hide an EINTR.
        let result = unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), options) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        child.wait().unwrap();
    });
}

/// The kernel never restarts these (signal(7)); the standard library's sleep does. A program that calls them directly
/// must expect EINTR, as with any signal: that, and no other error, is what may come out.
#[test]
fn sleeps_of_the_kernel_end_early_at_worst_with_eintr() {
    beside_a_busy_task(|_| {
        let time = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        // SAFETY: a valid time.
        let result = unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
        let error = std::io::Error::last_os_error();
        assert!(result == 0 || error.kind() == std::io::ErrorKind::Interrupted, "{error}");
    });
    beside_a_busy_task(|_| {
        let (start, time) = (std::time::Instant::now(), std::time::Duration::from_millis(2));
        std::thread::sleep(time);
        assert!(start.elapsed() >= time, "cut short");
    });
}

/// Like a library that keeps a list of its threads: its destructor holds a lock of the kernel's kind for a while. The
/// runtime ends while one is at it and others wait for the CPU.
#[test]
fn destructors_that_take_locks_do_not_stop_a_runtime_that_ends() {
    use std::sync::atomic::AtomicU64;
    static LIST: KernelMutex = KernelMutex::new();
    static STARTED: AtomicU64 = AtomicU64::new(0);
    struct OnList;
    impl Drop for OnList {
        fn drop(&mut self) {
            LIST.with(|| {
                STARTED.fetch_add(1, Ordering::SeqCst);
                (0..200_000).for_each(|_| std::hint::spin_loop());
            });
        }
    }
    thread_local!(static ENTRY: OnList = const { OnList });
    for _ in 0..20 {
        let rt = runtime("round-robin:quantum=20us");
        let before = STARTED.load(Ordering::SeqCst);
        (0..5).for_each(|_| drop(rt.spawn(|| ENTRY.with(|_| yield_now()))));
        while STARTED.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
        drop(rt);
        // What a process does at its end: the lock must be free, or become so.
        LIST.with(|| ());
    }
}

/// Runs `others` tasks beside one that sleeps in the kernel again and again until they have ended. It never lets them
/// run: they need the CPU to be taken from it.
fn beside_a_sleeper_in_the_kernel(rt: &Runtime, others: impl Fn() + Copy + Send + 'static) {
    let ended = Arc::new(AtomicBool::new(false));
    let seen = ended.clone();
    let sleeps = Arc::new(AtomicBool::new(false));
    let started = sleeps.clone();
    let sleeper = rt.spawn(move || {
        sleeps.store(true, Ordering::SeqCst);
        while !seen.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
    });
    common::wait_until(|| started.load(Ordering::SeqCst));
    let tasks: Vec<_> = (0..20).map(|_| rt.spawn(others)).collect();
    tasks.into_iter().for_each(|t| t.join().unwrap());
    ended.store(true, Ordering::SeqCst);
    sleeper.join().unwrap();
}

/// What preempts the task would wake it, and must not hide that it sleeps.
#[test]
fn a_task_that_sleeps_in_the_kernel_loses_its_cpu_whatever_the_quantum() {
    for quantum in ["20us", "100us", "1ms"] {
        let rt = runtime(&format!("round-robin:quantum={quantum}"));
        beside_a_sleeper_in_the_kernel(&rt, || {
            (0..100_000).for_each(|_| std::hint::spin_loop());
            yield_now();
        });
        assert!(rt.stats().takeovers >= 1, "{quantum}: {:?}", rt.stats());
    }
}

/// Its worker has lost the CPU meanwhile. The task never looks for itself, and if it is not made to queue, this does
/// not end.
#[test]
fn a_task_that_comes_back_from_the_kernel_and_computes_queues_like_others() {
    let rt = runtime("round-robin:quantum=100us");
    let (mut from, mut to) = pipe().unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let seen = ended.clone();
    let reads = rt.spawn(move || {
        let worker = heddle_sys::thread::id();
        read_byte(&mut from);
        common::spin_until(|| {
            (0..10_000).for_each(|_| std::hint::spin_loop());
            heddle_sys::thread::id() != worker
        });
        ended.store(true, Ordering::SeqCst);
    });
    let computes = rt.spawn(move || common::spin_until(|| seen.load(Ordering::SeqCst)));
    common::wait_until(|| rt.stats().takeovers >= 1);
    to.write_all(&[1]).unwrap();
    reads.join().unwrap();
    computes.join().unwrap();
}

/// The thread that starts spares is more urgent than any worker, and spares shall not be.
#[test]
fn a_spare_is_as_nice_as_a_worker() {
    let rt = runtime("fifo");
    let nice = || heddle_sys::scheduling::nice(0).unwrap();
    let ordinary = nice();
    beside_a_sleeper_in_the_kernel(&rt, move || assert_eq!(nice(), ordinary));
    assert!(rt.stats().takeovers >= 1);
}

/// The kernel threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn spares_end_soon_after_many_calls_have_blocked() {
    let test = "spares_end_soon_after_many_calls_have_blocked";
    let body = || {
        let rt = runtime("fifo");
        let before = threads();
        for _ in 0..2 {
            let (all, released) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
            let tasks: Vec<_> = (0..200)
                .map(|_| {
                    let (all, released) = (all.clone(), released.clone());
                    rt.spawn(move || {
                        blocking(|| {
                            all.fetch_add(1, Ordering::SeqCst);
                            common::wait_until(|| released.load(Ordering::SeqCst));
                        })
                    })
                })
                .collect();
            common::wait_until(|| all.load(Ordering::SeqCst) == 200);
            assert!(threads() >= 200, "each blocks a thread");
            released.store(true, Ordering::SeqCst);
            tasks.into_iter().for_each(|t| t.join().unwrap());
            // One spare for each CPU may stay. If the others do not end, this does not.
            common::wait_until(|| threads() <= before + 1);
            assert!(rt.stats().kernel_threads <= 2, "{:?}", rt.stats());
        }
        assert_eq!(rt.run(|| spawn(|| blocking(|| 5)).join().unwrap()), 5);
    };
    common::alone(test, body, common::assert_success);
}
