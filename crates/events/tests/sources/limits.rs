//! Exhausted resources.

use super::{USR1, delivered, is_alone, unshare};
use heddle_events::{EventOptions, EventQueue, FileChanges};
use rustix::process::{Pid, Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

/// Runs `run` while the process may open no more descriptors.
fn with_no_descriptors_left(run: impl FnOnce()) {
    let before = getrlimit(Resource::Nofile);
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    setrlimit(Resource::Nofile, Rlimit { current: Some(next as u64), ..before }).unwrap();
    run();
    setrlimit(Resource::Nofile, before).unwrap();
}

#[test]
fn without_descriptors_sources_are_refused_and_work_once_there_are_some() {
    let name = "limits::without_descriptors_sources_are_refused_and_work_once_there_are_some";
    if !is_alone(name, "") {
        return;
    }
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    let options = EventOptions::default();
    let this = Pid::as_raw(Some(getpid())) as u32;
    let all = || {
        [
            queue.register_timer(Duration::ZERO, None, 1, options.once()),
            queue.register_signal(USR1, 2, options.once()),
            queue.register_process(this, 3, options),
            queue.register_file("/dev/null", FileChanges::ATTRIB, 4, options),
        ]
    };
    with_no_descriptors_left(|| {
        for refused in all() {
            let error = refused.unwrap_err();
            assert_eq!(error.errno(), rustix::io::Errno::MFILE.raw_os_error(), "{error}");
        }
        assert!(queue.is_empty());
    });
    all().into_iter().for_each(|registered| assert!(registered.is_ok(), "{registered:?}"));
    kill_process(getpid(), Signal::USR1).unwrap();
    let mut came = delivered(&mut worker, 2);
    came.sort_unstable();
    assert_eq!(came, [(1, 1), (2, 1)]);
    assert_eq!(queue.len(), 2);
}

#[test]
fn more_files_than_the_system_watches_are_refused_by_name() {
    let Some(unshare) = unshare() else { return };
    let limit = "echo 2 > /proc/sys/user/max_inotify_watches;";
    let before = format!("exec {unshare} sh -c '{limit} exec \"$0\" \"$@\"' \"$0\" \"$@\";");
    if !is_alone("limits::more_files_than_the_system_watches_are_refused_by_name", &before) {
        return;
    }
    let queue = EventQueue::new().unwrap();
    let register = |path| queue.register_file(path, FileChanges::ALL, 0, EventOptions::default());
    let first = register("/dev/null").unwrap();
    register("/").unwrap();
    register("/").expect("the same file takes no watch");
    let error = register("/proc").unwrap_err();
    assert!(error.to_string().contains("max_user_watches"), "{error}");
    assert_eq!((error.errno(), queue.len()), (28, 3));
    queue.deregister(first).unwrap();
    register("/proc").expect("what has ended leaves room");
}
