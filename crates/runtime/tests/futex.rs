//! What tasks wait for by futexes: the locks of the standard library, and the calls themselves. A task parks; its
//! worker goes on, and no other thread is needed for it.

mod common;

use common::{alone, assert_success, in_both_modes, runtime, two_workers};
use heddle_rt::{JoinHandle, Runtime, no_preempt, spawn, yield_now};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel, sync_channel};
use std::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock};
use std::time::{Duration, Instant};

/// How many tasks wait at once.
const WAITING: usize = 20;

/// Lets other tasks run until each of them waits or has ended.
fn settle() {
    (0..100).for_each(|_| yield_now());
}

/// Spawns tasks that run `f` and gives them the time to wait.
fn waiting<T: Send + 'static>(
    f: impl Fn(usize) -> T + Clone + Send + 'static,
) -> Vec<JoinHandle<T>> {
    let task = |i| {
        let f = f.clone();
        spawn(move || f(i))
    };
    let tasks = (0..WAITING).map(task).collect();
    settle();
    tasks
}

fn join<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    tasks.into_iter().map(|task| task.join().unwrap()).collect()
}

/// Runs `body` in a task of a runtime with one worker. None of its waits blocks the worker.
fn without_take_overs(body: fn()) {
    let rt = runtime("round-robin:quantum=100us");
    // Stacks for all: to make one may block, above all where a kernel thread lends its thread-local variables.
    rt.run(|| join((0..4 * WAITING).map(|_| spawn(settle)).collect()));
    let before = rt.stats();
    rt.run(body);
    let after = rt.stats();
    assert_eq!(after.takeovers, before.takeovers, "{after:?}");
    assert!(after.kernel_threads <= before.kernel_threads, "{before:?} {after:?}");
}

/// Tests whose body runs by [`without_take_overs`].
macro_rules! tests {
    ($($name:ident $body:block)*) => {$(
        #[test]
        fn $name() {
            in_both_modes(stringify!($name), || without_take_overs(|| $body));
        }
    )*};
}

tests! {
    a_mutex_whose_holder_lets_others_run {
        let lock = Arc::new(Mutex::new(0));
        let theirs = lock.clone();
        let mut held = lock.lock().unwrap();
        let tasks = waiting(move |_| *theirs.lock().unwrap() += 1);
        assert_eq!(*held, 0);
        *held = 100;
        drop(held);
        join(tasks);
        assert_eq!(*lock.lock().unwrap(), 100 + WAITING);
    }

    a_reader_writer_lock {
        let lock = Arc::new(RwLock::new(0));
        let (readers, writers) = (lock.clone(), lock.clone());
        let held = lock.write().unwrap();
        let reading = waiting(move |_| *readers.read().unwrap() <= WAITING);
        let writing = waiting(move |_| *writers.write().unwrap() += 1);
        drop(held);
        assert!(join(reading).into_iter().all(|read| read));
        join(writing);
        assert_eq!(*lock.read().unwrap(), WAITING);
    }

    a_condition_variable {
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let theirs = pair.clone();
        let tasks = waiting(move |i| {
            let (lock, changed) = &*theirs;
            let count = changed.wait_while(lock.lock().unwrap(), |count| *count <= i).unwrap();
            assert!(*count > i);
        });
        for i in 1..=WAITING {
            *pair.0.lock().unwrap() = i;
            if i % 2 == 0 { pair.1.notify_all() } else { pair.1.notify_one() }
            yield_now();
        }
        pair.1.notify_all();
        join(tasks);
    }

    a_condition_variable_with_a_time {
        let time = Duration::from_millis(5);
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = pair.clone();
        let tasks = waiting(move |i| {
            let (lock, changed) = &*theirs;
            let begin = Instant::now();
            let limit = if i == 0 { Duration::MAX } else { time };
            let (guard, result) =
                changed.wait_timeout_while(lock.lock().unwrap(), limit, |set| !*set).unwrap();
            assert!(*guard || result.timed_out() && begin.elapsed() >= time);
            result.timed_out()
        });
        heddle_rt::sleep(2 * time);
        *pair.0.lock().unwrap() = true;
        pair.1.notify_all();
        let timed_out = join(tasks);
        assert!(!timed_out[0] && timed_out[1..].iter().any(|&out| out));
    }

    what_is_done_once {
        static CELL: OnceLock<u32> = OnceLock::new();
        static ONCE: Once = Once::new();
        static LAZY: LazyLock<u32> = LazyLock::new(|| {
            settle();
            7
        });
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let call = || {
            settle();
            CALLS.fetch_add(1, Ordering::Relaxed);
        };
        let tasks = waiting(move |_| {
            let cell = *CELL.get_or_init(|| {
                settle();
                5
            });
            ONCE.call_once(call);
            cell + *LAZY
        });
        assert!(join(tasks).into_iter().all(|sum| sum == 12));
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    }

    a_parked_thread {
        let tasks = waiting(|i| {
            let me = std::thread::current();
            let done = Arc::new(AtomicBool::new(false));
            let theirs = done.clone();
            let other = spawn(move || {
                settle();
                theirs.store(true, Ordering::SeqCst);
                me.unpark();
            });
            while !done.load(Ordering::SeqCst) {
                match i % 2 {
                    0 => std::thread::park(),
                    _ => std::thread::park_timeout(Duration::from_secs(3600)),
                }
            }
            other.join().unwrap();
            let begin = Instant::now();
            std::thread::park_timeout(Duration::from_millis(1));
            begin.elapsed()
        });
        assert_eq!(join(tasks).len(), WAITING);
    }

    channels_of_the_standard_library {
        let (say, hear) = channel();
        let hearing = spawn(move || hear.iter().sum::<usize>());
        settle();
        let tasks = waiting(move |i| say.send(i).unwrap());
        join(tasks);
        assert_eq!(hearing.join().unwrap(), (0..WAITING).sum());

        let (say, hear) = sync_channel(0);
        let tasks = waiting(move |i| say.send(i).unwrap());
        assert_eq!((0..WAITING).map(|_| hear.recv().unwrap()).sum::<usize>(), (0..WAITING).sum());
        assert!(hear.recv().is_err());
        join(tasks);

        let (say, hear) = channel::<()>();
        let late = hear.recv_timeout(Duration::from_millis(2));
        assert_eq!(late, Err(RecvTimeoutError::Timeout));
        drop(say);
    }

    a_barrier {
        let barrier = Arc::new(Barrier::new(WAITING));
        let tasks = waiting(move |_| (0..10).filter(|_| barrier.wait().is_leader()).count());
        assert_eq!(join(tasks).into_iter().sum::<usize>(), 10);
    }

    a_scope_of_tasks_that_share_a_lock_and_are_preempted {
        let lock = Mutex::new(0u64);
        heddle_rt::scope(|s| {
            for _ in 0..WAITING {
                s.spawn(|| {
                    for _ in 0..50 {
                        let mut held = lock.lock().unwrap();
                        *held += 1;
                        // Longer than a quantum now and then.
                        let long = if held.is_multiple_of(20) { 200_000 } else { 1_000 };
                        (0..long).for_each(|_| std::hint::spin_loop());
                    }
                });
            }
        });
        assert_eq!(lock.into_inner().unwrap(), 50 * WAITING as u64);
    }
}

#[test]
fn tasks_and_kernel_threads_share_a_lock() {
    let body = || {
        let rt = two_workers("round-robin:quantum=100us");
        let lock = Arc::new((Mutex::new(0u32), Condvar::new()));
        let add = |lock: Arc<(Mutex<u32>, Condvar)>| {
            move || {
                for i in 0..500 {
                    let mut held = lock.0.lock().unwrap();
                    *held += 1;
                    if i % 10 == 0 {
                        yield_now();
                    }
                    lock.1.notify_one();
                }
            }
        };
        let tasks: Vec<_> = (0..10).map(|_| rt.spawn(add(lock.clone()))).collect();
        let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(add(lock.clone()))).collect();
        let all = 13 * 500;
        let wait = |lock: Arc<(Mutex<u32>, Condvar)>| {
            move || drop(lock.1.wait_while(lock.0.lock().unwrap(), |n| *n < all).unwrap())
        };
        let waits = rt.spawn(wait(lock.clone()));
        let thread_waits = std::thread::spawn(wait(lock.clone()));
        tasks.into_iter().for_each(|task| task.join().unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        lock.1.notify_all();
        waits.join().unwrap();
        thread_waits.join().unwrap();
        assert_eq!(*lock.0.lock().unwrap(), all);
    };
    alone("tasks_and_kernel_threads_share_a_lock", body, assert_success);
}

/// Tasks wait all the time, and each unlocking wakes one waiter: not always one of them.
#[test]
fn a_kernel_thread_gets_a_lock_for_which_tasks_wait_without_end() {
    let rt = runtime("fifo");
    let (lock, done) = (Arc::new(Mutex::new(())), Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> = (0..WAITING)
        .map(|_| {
            let (lock, done) = (lock.clone(), done.clone());
            rt.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let held = lock.lock().unwrap();
                    yield_now();
                    drop(held);
                }
            })
        })
        .collect();
    (0..20).for_each(|_| drop(lock.lock().unwrap()));
    done.store(true, Ordering::Relaxed);
    tasks.into_iter().for_each(|task| task.join().unwrap());
}

#[test]
fn a_task_that_holds_preemption_off_waits_in_the_kernel() {
    let rt = runtime("fifo");
    let lock = Arc::new(Mutex::new(5));
    let (theirs, held) = (lock.clone(), lock.lock().unwrap());
    let waits = Arc::new(AtomicBool::new(false));
    let begins = waits.clone();
    let task = rt.spawn(move || {
        no_preempt(|| {
            begins.store(true, Ordering::SeqCst);
            *theirs.lock().unwrap()
        })
    });
    common::wait_until(|| waits.load(Ordering::SeqCst));
    // Its worker sleeps, so another one runs this.
    rt.spawn(|| ()).join().unwrap();
    assert_eq!(rt.stats().takeovers, 1);
    drop(held);
    assert_eq!(task.join().unwrap(), 5);
}

const PRIVATE: i32 = libc::FUTEX_PRIVATE_FLAG;
const WAIT: i32 = libc::FUTEX_WAIT | PRIVATE;
const WAIT_BITSET: i32 = libc::FUTEX_WAIT_BITSET | PRIVATE;
const WAKE: i32 = libc::FUTEX_WAKE | PRIVATE;
const WAKE_BITSET: i32 = libc::FUTEX_WAKE_BITSET | PRIVATE;
const ANY: u32 = u32::MAX;

/// Makes the call. Returns its result, or the error's number.
fn futex(
    word: &AtomicU32,
    op: i32,
    value: u32,
    time: Option<&libc::timespec>,
    bits: u32,
) -> Result<i64, i32> {
    let time = time.map_or(std::ptr::null(), std::ptr::from_ref);
    let other = std::ptr::null::<u32>();
    // SAFETY: the word and the time are valid.
    let result =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, time, other, bits) };
    if result >= 0 { Ok(result) } else { Err(io::Error::last_os_error().raw_os_error().unwrap()) }
}

fn now_and(clock: i32, more_ns: i64) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid result.
    unsafe { libc::clock_gettime(clock, &mut time) };
    let ns = time.tv_nsec + more_ns;
    libc::timespec { tv_sec: time.tv_sec + ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 }
}

/// What the kernel answers, asked by an ordinary thread and by a task.
#[test]
fn errors_and_times_are_the_kernels() {
    fn check() {
        let word = AtomicU32::new(1);
        let span = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        assert_eq!(futex(&word, WAIT, 0, None, 0), Err(libc::EAGAIN));
        assert_eq!(futex(&word, WAIT_BITSET, 0, None, ANY), Err(libc::EAGAIN));
        assert_eq!(futex(&word, WAIT_BITSET, 1, None, 0), Err(libc::EINVAL));
        assert_eq!(futex(&word, WAIT, 1, Some(&span), 0), Err(libc::ETIMEDOUT));
        for (clock, flag) in
            [(libc::CLOCK_MONOTONIC, 0), (libc::CLOCK_REALTIME, libc::FUTEX_CLOCK_REALTIME)]
        {
            let begin = Instant::now();
            let at = now_and(clock, 3_000_000);
            assert_eq!(futex(&word, WAIT_BITSET | flag, 1, Some(&at), ANY), Err(libc::ETIMEDOUT));
            assert!(begin.elapsed() >= Duration::from_millis(2), "{:?}", begin.elapsed());
            let past = libc::timespec { tv_sec: 1, tv_nsec: 0 };
            assert_eq!(futex(&word, WAIT_BITSET | flag, 1, Some(&past), ANY), Err(libc::ETIMEDOUT));
        }
        let wrong = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };
        assert_eq!(futex(&word, WAIT, 1, Some(&wrong), 0), Err(libc::EINVAL));
        assert_eq!(futex(&word, WAIT | libc::FUTEX_CLOCK_REALTIME, 1, None, 0), Err(libc::ENOSYS));
        assert_eq!(futex(&word, WAKE, 1, None, 0), Ok(0));
        assert_eq!(futex(&word, WAKE_BITSET, 1, None, 0), Err(libc::EINVAL));
        assert_eq!(futex(&word, 99, 1, None, 0), Err(libc::ENOSYS));
        // What is not private is the kernel's: it comes back by itself here.
        let span = Some(&span);
        assert_eq!(futex(&word, libc::FUTEX_WAIT, 1, span, 0), Err(libc::ETIMEDOUT));
        // SAFETY: no arguments; a descriptor that does not exist.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_getpid), libc::getpid().into());
            assert_eq!(libc::syscall(libc::SYS_close, -1), -1);
        }
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }
    check();
    runtime("fifo").run(check);
}

/// A word for which tasks and kernel threads wait: `counts` of each.
struct Crowd {
    word: Arc<AtomicU32>,
    tasks: Vec<JoinHandle<Result<i64, i32>>>,
    threads: Vec<std::thread::JoinHandle<Result<i64, i32>>>,
}

impl Crowd {
    fn new(
        rt: &Runtime,
        word: Arc<AtomicU32>,
        (tasks, threads): (usize, usize),
        bits: u32,
    ) -> Crowd {
        let numbers = Arc::new(Mutex::new(vec![]));
        let wait = |word: Arc<AtomicU32>| move || futex(&word, WAIT_BITSET, 0, None, bits);
        let tasks = (0..tasks).map(|_| rt.spawn(wait(word.clone()))).collect();
        let thread = |_| {
            let (numbers, wait) = (numbers.clone(), wait(word.clone()));
            std::thread::spawn(move || {
                numbers.lock().unwrap().push(heddle_sys::thread::id());
                wait()
            })
        };
        let started: Vec<_> = (0..threads).map(thread).collect();
        rt.run(settle);
        let address = word.as_ptr() as usize;
        common::wait_until(|| {
            let numbers = numbers.lock().unwrap();
            let sleeps = |&tid: &u32| heddle_sys::thread::awaited_futex(tid) == Some(address);
            numbers.len() == threads && numbers.iter().all(sleeps)
        });
        Crowd { word, tasks, threads: started }
    }

    fn wake(&self, most: u32) -> i64 {
        futex(&self.word, WAKE, most, None, 0).unwrap()
    }

    /// All have been woken.
    fn end(self) {
        self.tasks.into_iter().for_each(|task| assert_eq!(task.join().unwrap(), Ok(0)));
        self.threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), Ok(0)));
    }
}

fn word() -> Arc<AtomicU32> {
    Arc::new(AtomicU32::new(0))
}

#[test]
fn a_wake_counts_tasks_and_kernel_threads_alike() {
    let rt = runtime("fifo");
    let crowd = Crowd::new(&rt, word(), (3, 2), ANY);
    assert_eq!(crowd.wake(4), 4);
    assert_eq!(crowd.wake(4), 1);
    assert_eq!(crowd.wake(4), 0);
    crowd.end();
    // By a task.
    let crowd = Crowd::new(&rt, word(), (2, 3), ANY);
    let theirs = crowd.word.clone();
    let woken = rt
        .run(move || (0..6).map(|_| futex(&theirs, WAKE, 1, None, 0).unwrap()).collect::<Vec<_>>());
    assert_eq!(woken, [1, 1, 1, 1, 1, 0]);
    crowd.end();
    let crowd = Crowd::new(&rt, word(), (3, 3), ANY);
    assert_eq!(crowd.wake(i32::MAX as u32), 6);
    crowd.end();
}

#[test]
fn a_wake_with_a_mask_passes_by_those_that_share_no_bit() {
    let rt = runtime("fifo");
    let shared = word();
    let odd = Crowd::new(&rt, shared.clone(), (2, 1), 0b01);
    let even = Crowd::new(&rt, shared.clone(), (1, 2), 0b10);
    assert_eq!(futex(&shared, WAKE_BITSET, 100, None, 0b100), Ok(0));
    assert_eq!(futex(&shared, WAKE_BITSET, 100, None, 0b10), Ok(3));
    even.end();
    assert_eq!(futex(&shared, WAKE_BITSET, 100, None, 0b11), Ok(3));
    odd.end();
}

#[test]
fn waiters_are_moved_to_another_word() {
    let rt = runtime("fifo");
    let (from, to) = (word(), word());
    let crowd = Crowd::new(&rt, from.clone(), (3, 2), ANY);
    let requeue = |op: i32, wake: usize, most: usize, expected: u32| {
        let (op, from, to) = (op | PRIVATE, from.as_ptr(), to.as_ptr());
        // SAFETY: both words are valid.
        unsafe { libc::syscall(libc::SYS_futex, from, op, wake, most, to, expected) }
    };
    assert_eq!(requeue(libc::FUTEX_CMP_REQUEUE, 1, 100, 1), -1);
    assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
    assert_eq!(requeue(libc::FUTEX_CMP_REQUEUE, 1, 100, 0), 5);
    assert_eq!(crowd.wake(100), 0, "none is left there");
    assert_eq!(futex(&to, WAKE, 1, None, 0), Ok(1));
    assert_eq!(futex(&to, WAKE, 100, None, 0), Ok(3));
    crowd.end();
    // Changes the second word from 0 to 3, and wakes those of it because it was 0.
    let (first, second) = (Crowd::new(&rt, from, (1, 1), ANY), Crowd::new(&rt, to, (1, 1), ANY));
    let code = 3u32 << 12;
    let (op, at, other) =
        (libc::FUTEX_WAKE_OP | PRIVATE, first.word.as_ptr(), second.word.as_ptr());
    // SAFETY: both words are valid.
    let woken = unsafe { libc::syscall(libc::SYS_futex, at, op, 9usize, 9usize, other, code) };
    assert_eq!((woken, second.word.load(Ordering::SeqCst)), (4, 3));
    first.end();
    second.end();
}

/// In the child of a runtime with one worker, whose tasks go on there.
#[test]
fn a_forked_child_has_the_waiters_too() {
    let body = || {
        let rt = runtime("fifo");
        let status = rt.run(|| {
            let lock = Arc::new(Mutex::new(0));
            let theirs = lock.clone();
            let held = lock.lock().unwrap();
            let tasks = waiting(move |_| *theirs.lock().unwrap() += 1);
            // SAFETY: the child makes no use of other threads and ends without destructors.
            let child = unsafe { libc::fork() };
            drop(held);
            join(tasks);
            let all = *lock.lock().unwrap() == WAITING;
            if child == 0 {
                // SAFETY: as above.
                unsafe { libc::_exit(if all { 7 } else { 1 }) };
            }
            let mut status = 0;
            // SAFETY: our own child.
            let ended = heddle_rt::blocking(|| unsafe { libc::waitpid(child, &mut status, 0) });
            assert!(all && ended == child);
            status
        });
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    };
    alone("a_forked_child_has_the_waiters_too", body, assert_success);
}

/// New tasks come before preempted ones, and there is always one: none that comes to wait for the lock would let its
/// holder run.
#[test]
fn who_waits_for_a_lock_lends_its_cpu_to_the_holder() {
    const MOST: usize = 20_000;
    fn flood(lock: Arc<Mutex<bool>>, count: Arc<AtomicUsize>) {
        spawn(move || {
            if count.fetch_add(1, Ordering::SeqCst) < MOST {
                flood(lock.clone(), count.clone());
            }
            if *lock.lock().unwrap() {
                count.fetch_max(MOST, Ordering::SeqCst);
            }
        });
    }
    let test = "who_waits_for_a_lock_lends_its_cpu_to_the_holder";
    let body = || {
        runtime("two-queue:quantum=100us,patience=4000000000").run(|| {
            let (lock, count) = (Arc::new(Mutex::new(false)), Arc::new(AtomicUsize::new(0)));
            let mut held = lock.lock().unwrap();
            flood(lock.clone(), count.clone());
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(5) || count.load(Ordering::SeqCst) == 0 {
                std::hint::spin_loop();
            }
            let came = count.load(Ordering::SeqCst);
            *held = true;
            drop(held);
            assert!((1..MOST).contains(&came), "{came} tasks came to wait");
        });
    };
    alone(test, body, assert_success);
}
