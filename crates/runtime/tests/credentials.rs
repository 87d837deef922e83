//! `setuid` and its kin change every thread of the process, workers included.

mod common;

use common::{in_both_modes, spin_until, two_workers};
use heddle_rt::{spawn, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// User ids (real, effective, saved, of files) of every kernel thread of this process.
fn users() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let statuses = threads.map(|t| std::fs::read_to_string(t.unwrap().path().join("status")));
    let users = |status: String| {
        let line = status.lines().find(|line| line.starts_with("Uid:")).unwrap().to_owned();
        line.trim_start_matches("Uid:").trim().to_owned()
    };
    // A thread may end meanwhile.
    statuses.flatten().map(users).collect()
}

#[test]
fn setuid_in_a_task_returns_and_reaches_every_thread() {
    in_both_modes("setuid_in_a_task_returns_and_reaches_every_thread", || {
        // SAFETY: the alarm ends the process if the call does not return.
        unsafe { libc::alarm(600) };
        let rt = two_workers("round-robin:quantum=100us");
        let stop = Arc::new(AtomicBool::new(false));
        let task = |stop: Arc<AtomicBool>| {
            spin_until(|| {
                yield_now();
                stop.load(Ordering::Relaxed)
            })
        };
        let compute = |stop: Arc<AtomicBool>| spin_until(|| stop.load(Ordering::Relaxed));
        rt.run(|| {
            let stops = || stop.clone();
            let tasks = [stops(), stops()].map(|stop| spawn(move || task(stop)));
            let computing = [stops(), stops()].map(|stop| spawn(move || compute(stop)));
            yield_now();
            // SAFETY: ids alone.
            let user = unsafe {
                let (user, group) = (libc::getuid(), libc::getgid());
                // Without the right to choose, the same again.
                let user = if user == 0 { 65_534 } else { user };
                assert_eq!((libc::setgid(group), libc::setuid(user)), (0, 0));
                assert_eq!((libc::seteuid(user), libc::getuid(), libc::geteuid()), (0, user, user));
                if user == 65_534 {
                    assert_eq!((libc::setuid(0), *libc::__errno_location()), (-1, libc::EPERM));
                }
                user
            };
            let expected = [user; 4].map(|user| user.to_string()).join("\t");
            assert!(users().iter().all(|users| *users == expected), "{:?}", users());
            stop.store(true, Ordering::Relaxed);
            tasks.into_iter().chain(computing).for_each(|task| task.join().unwrap());
        });
    });
}
