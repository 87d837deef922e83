//! Child processes from tasks. A forked child has the calling task only, without ticker and other workers: it may go on
//! in that task, and should exec or `_exit`.

mod common;

use common::{alone, assert_success, in_both_modes, runtime, two_workers};
use heddle_rt::{blocking, spawn, yield_now};
use std::process::Command;

#[test]
fn commands_run_from_tasks() {
    in_both_modes("commands_run_from_tasks", || {
        let rt = two_workers("work-stealing:quantum=100us");
        rt.run(|| {
            let echo = |i: u32| {
                move || {
                    let out = blocking(|| Command::new("echo").arg(i.to_string()).output());
                    let out = String::from_utf8(out.unwrap().stdout).unwrap();
                    assert_eq!(out.trim(), i.to_string());
                }
            };
            let tasks: Vec<_> = (0..10).map(|i| spawn(echo(i))).collect();
            tasks.into_iter().for_each(|t| t.join().unwrap());
        });
    });
}

/// Forks; `in_child` gives the child's exit status.
fn forked(in_child: impl FnOnce() -> i32) -> i32 {
    let mut status = 0;
    // SAFETY: the child only runs `in_child` and ends without destructors.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            libc::_exit(in_child());
        }
        assert_eq!(blocking(|| libc::waitpid(pid, &mut status, 0)), pid);
    }
    assert!(libc::WIFEXITED(status), "status {status:#x}");
    libc::WEXITSTATUS(status)
}

#[test]
fn a_forked_child_execs() {
    in_both_modes("a_forked_child_execs", || {
        let rt = two_workers("work-stealing");
        for _ in 0..5 {
            let status = rt.run(|| {
                forked(|| {
                    let args =
                        [c"sh".as_ptr(), c"-c".as_ptr(), c"exit 7".as_ptr(), std::ptr::null()];
                    // SAFETY: a list of strings that ends in null.
                    unsafe { libc::execv(c"/bin/sh".as_ptr(), args.as_ptr()) }
                })
            });
            assert_eq!(status, 7);
        }
    });
}

#[test]
fn a_forked_child_of_one_worker_goes_on_in_its_task() {
    in_both_modes("a_forked_child_of_one_worker_goes_on_in_its_task", || {
        let status = runtime("fifo").run(|| {
            forked(|| {
                let other = spawn(|| 5);
                yield_now();
                let mut data: Vec<u64> = (0..1000).collect();
                data.reverse();
                other.join().unwrap() + (data[0] == 999) as i32
            })
        });
        assert_eq!(status, 6);
    });
}

#[test]
fn the_parent_goes_on_after_forks() {
    let body = || {
        let rt = runtime("round-robin:quantum=100us");
        rt.run(|| {
            for i in 0..20 {
                assert_eq!(forked(|| i), i);
                assert_eq!(spawn(move || i).join().unwrap(), i);
            }
        });
    };
    alone("the_parent_goes_on_after_forks", body, assert_success);
}
