//! The C library works in tasks: what it keeps per thread is per task.

mod common;

use common::{in_both_modes, runtime, two_workers};
use heddle_rt::{no_preempt, spawn, yield_now};
use std::ffi::{CStr, c_int, c_void};
use std::net::ToSocketAddrs;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn errno() -> &'static mut c_int {
    // SAFETY: the calling task's own, used at once.
    unsafe { &mut *libc::__errno_location() }
}

#[test]
fn errno_is_kept_across_yields_and_preemptions() {
    in_both_modes("errno_is_kept_across_yields_and_preemptions", || {
        let rt = runtime("round-robin:quantum=50us");
        let stop = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (1..5)
            .map(|id| {
                let stop = stop.clone();
                rt.spawn(move || {
                    *errno() = id;
                    for round in 0u32.. {
                        assert_eq!(*errno(), id);
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        if round.is_multiple_of(1_000_000) {
                            yield_now();
                        }
                    }
                })
            })
            .collect();
        common::wait_until(|| rt.stats().preemptions > 300);
        stop.store(true, Ordering::SeqCst);
        tasks.into_iter().for_each(|t| t.join().unwrap());
    });
}

static RUN: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count(by: *mut c_void) {
    RUN.fetch_add(by as usize, Ordering::SeqCst);
}

unsafe extern "C" {
    fn __cxa_thread_atexit_impl(
        run: unsafe extern "C" fn(*mut c_void),
        object: *mut c_void,
        dso: *mut c_void,
    ) -> c_int;
}

#[test]
fn destructors_of_cpp_run_at_the_tasks_end() {
    in_both_modes("destructors_of_cpp_run_at_the_tasks_end", || {
        runtime("fifo").run(|| {
            // SAFETY: `count` takes any pointer.
            let register = |by: usize| unsafe {
                __cxa_thread_atexit_impl(count, by as *mut c_void, std::ptr::null_mut())
            };
            let task = spawn(move || {
                assert_eq!((register(1), register(10)), (0, 0));
                yield_now();
                assert_eq!(RUN.load(Ordering::SeqCst), 0, "not before the end");
            });
            task.join().unwrap();
            assert_eq!(RUN.load(Ordering::SeqCst), 11);
        });
    });
}

#[test]
fn keys_are_the_tasks_own_and_their_destructors_run() {
    in_both_modes("keys_are_the_tasks_own_and_their_destructors_run", || {
        let mut key = 0;
        // SAFETY: `count` takes any value; the key is used while it exists.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(count)) }, 0);
        let rt = runtime("fifo");
        let n = 100;
        for value in 1..=n {
            rt.run(|| {
                // SAFETY: as above.
                unsafe {
                    assert!(libc::pthread_getspecific(key).is_null(), "left by another task");
                    libc::pthread_setspecific(key, value as *const c_void);
                    yield_now();
                    assert_eq!(libc::pthread_getspecific(key) as usize, value);
                }
            });
        }
        assert_eq!(RUN.load(Ordering::SeqCst), n * (n + 1) / 2);
        // SAFETY: no value is left.
        unsafe { libc::pthread_key_delete(key) };
    });
}

/// Sets its key, one less than its value, again each time, and registers another destructor as it does so.
unsafe extern "C" fn come_again(value: *mut c_void) {
    // SAFETY: the key exists while tasks of the test run; `count` takes any pointer.
    unsafe {
        libc::pthread_setspecific(value as libc::pthread_key_t - 1, value);
        __cxa_thread_atexit_impl(count, ptr::without_provenance_mut(1), ptr::null_mut());
    }
}

#[test]
fn no_destructor_and_no_value_is_left_to_the_next_task() {
    in_both_modes("no_destructor_and_no_value_is_left_to_the_next_task", || {
        let mut key = 0;
        // SAFETY: the destructor takes what is set below.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(come_again)) }, 0);
        let rt = runtime("fifo");
        // SAFETY: as above.
        rt.run(move || unsafe {
            libc::pthread_setspecific(key, (key as usize + 1) as *mut c_void)
        });
        let ran = RUN.load(Ordering::SeqCst);
        assert_eq!(ran, 4, "one for each round over the keys");
        for _ in 0..10 {
            // SAFETY: as above.
            rt.run(move || assert!(unsafe { libc::pthread_getspecific(key) }.is_null()));
        }
        assert_eq!(RUN.load(Ordering::SeqCst), ran, "left to a later task");
    });
}

struct PthreadMutex(std::cell::UnsafeCell<libc::pthread_mutex_t>);
// SAFETY: what it is for.
unsafe impl Sync for PthreadMutex {}
// SAFETY: not moved while it is held.
unsafe impl Send for PthreadMutex {}

fn pthread_mutex(kind: c_int) -> Arc<PthreadMutex> {
    let mutex = Arc::new(PthreadMutex(libc::PTHREAD_MUTEX_INITIALIZER.into()));
    // SAFETY: initialised before use, in its final place.
    unsafe {
        let mut attr: libc::pthread_mutexattr_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attr);
        libc::pthread_mutexattr_settype(&mut attr, kind);
        libc::pthread_mutex_init(mutex.0.get(), &attr);
    }
    mutex
}

#[test]
fn a_recursive_mutex_knows_its_task() {
    in_both_modes("a_recursive_mutex_knows_its_task", || {
        let mutex = pthread_mutex(libc::PTHREAD_MUTEX_RECURSIVE);
        let checked = pthread_mutex(libc::PTHREAD_MUTEX_ERRORCHECK);
        runtime("fifo").run(move || {
            // SAFETY: initialised mutexes; each lock is undone by the task that took it.
            let (lock, unlock, try_lock) = unsafe {
                (
                    |m: &PthreadMutex| libc::pthread_mutex_lock(m.0.get()),
                    |m: &PthreadMutex| libc::pthread_mutex_unlock(m.0.get()),
                    |m: &PthreadMutex| libc::pthread_mutex_trylock(m.0.get()),
                )
            };
            assert_eq!((lock(&mutex), lock(&mutex), lock(&checked)), (0, 0, 0));
            let (theirs, checked2) = (mutex.clone(), checked.clone());
            let other = spawn(move || {
                assert_eq!(try_lock(&theirs), libc::EBUSY, "taken by two tasks");
                assert_eq!(unlock(&checked2), libc::EPERM, "released by another task");
            });
            other.join().unwrap();
            assert_eq!(lock(&checked), libc::EDEADLK);
            assert_eq!((unlock(&mutex), unlock(&mutex), unlock(&checked)), (0, 0, 0));
            let theirs = mutex.clone();
            spawn(move || assert_eq!((try_lock(&theirs), unlock(&theirs)), (0, 0))).join().unwrap();
        });
    });
}

#[test]
fn sched_getcpu_is_right() {
    in_both_modes("sched_getcpu_is_right", || {
        two_workers("work-stealing").run(|| {
            let check = || {
                for _ in 0..50 {
                    // Workers are pinned, and without a preemption the task stays.
                    no_preempt(|| {
                        let mut cpu = 0u32;
                        // SAFETY: one writable word.
                        unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, 0, 0) };
                        // SAFETY: no arguments.
                        assert_eq!(unsafe { libc::sched_getcpu() }, cpu as i32);
                    });
                    yield_now();
                }
            };
            let tasks: Vec<_> = (0..8).map(|_| spawn(check)).collect();
            tasks.into_iter().for_each(|t| t.join().unwrap());
        });
    });
}

#[test]
fn pthread_getattr_np_returns_the_tasks_stack() {
    in_both_modes("pthread_getattr_np_returns_the_tasks_stack", || {
        runtime("fifo").run(|| {
            let local = 0u8;
            let (mut base, mut size) = (std::ptr::null_mut(), 0);
            // SAFETY: the attribute is filled by the first call and destroyed by the last.
            unsafe {
                let mut attr: libc::pthread_attr_t = std::mem::zeroed();
                assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attr), 0);
                libc::pthread_attr_getstack(&attr, &mut base, &mut size);
                libc::pthread_attr_destroy(&mut attr);
            }
            let stack = base as usize..base as usize + size;
            assert!(stack.contains(&(&raw const local as usize)));
            assert!((200 << 10..=256 << 10).contains(&size), "{size}");
        });
    });
}

#[test]
fn locale_numbers_messages_and_names_work() {
    in_both_modes("locale_numbers_messages_and_names_work", || {
        let rt = two_workers("work-stealing:quantum=100us");
        let work = || {
            // SAFETY: plain calls with valid arguments; the message is copied before the next call.
            unsafe {
                assert!(libc::isalpha(b'q'.into()) != 0 && libc::isalpha(b'7'.into()) == 0);
                assert_eq!(libc::strtod(c"2.5e3".as_ptr(), std::ptr::null_mut()), 2500.0);
                let message = CStr::from_ptr(libc::strerror(libc::ENOENT)).to_owned();
                assert!(message.to_string_lossy().contains("No such file"), "{message:?}");
            }
            let addresses: Vec<_> = ("localhost", 80).to_socket_addrs().unwrap().collect();
            assert!(addresses.iter().all(|a| a.ip().is_loopback()) && !addresses.is_empty());
        };
        for _ in 0..5 {
            let tasks: Vec<_> = (0..4).map(|_| rt.spawn(work)).collect();
            tasks.into_iter().for_each(|t| t.join().unwrap());
        }
    });
}
