//! Child processes: their ends and streams are awaited through the poller.

mod common;

use common::{alone, assert_success, runtime, two_workers};
use heddle_rt::process::{Command, Stdio};
use heddle_rt::{Elapsed, block_on, scope, spawn, timeout, timeout_async, yield_now};
use rustix::fs::{OFlags, fcntl_getfl};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(5);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn output_has_both_streams_and_the_status() {
    let test = || {
        // More than a pipe holds in each: the child goes on only if both are read.
        let script = "head -c 300000 /dev/zero >&2; head -c 400000 /dev/zero; cat; exit 3";
        let output = shell(script).output().unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (400_000, 300_000));
        assert_eq!(output.status.code(), Some(3));
        let only = shell("echo out; echo err >&2").stderr(Stdio::null()).output().unwrap();
        assert_eq!((&only.stdout[..], &only.stderr[..]), (&b"out\n"[..], &b""[..]));
    };
    runtime("fifo").run(test);
    two_workers("work-stealing:quantum=100us").run(test);
    test();
}

#[test]
fn a_command_runs_again_with_the_streams_it_was_given() {
    runtime("fifo").run(|| {
        let mut command = shell("read line; echo \"$line\"");
        assert_eq!(command.output().unwrap().stdout, b"\n", "empty input by default");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"text\n").unwrap();
        assert_eq!(child.wait_with_output().unwrap().stdout, b"text\n");
    });
}

#[test]
fn statuses_environment_and_directory_arrive() {
    two_workers("work-stealing").run(|| {
        let mut command = shell("test \"$PWD $A$B$C\" = '/ 12'");
        command.current_dir("/").envs([("A", "1"), ("B", "2"), ("C", "3")]).env_remove("C");
        assert!(command.status().unwrap().success());
        assert!(command.as_std().get_args().eq(["-c", "test \"$PWD $A$B$C\" = '/ 12'"]));
        let killed = shell("kill -TERM $$").status().unwrap();
        assert_eq!(killed.signal(), Some(libc::SIGTERM));
        let missing = Command::new("/no/such/program").spawn().unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn waiting_ends_at_its_timeout_and_at_a_limit_and_a_killed_child_is_reaped() {
    let test = || {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(child.try_wait().unwrap().is_none());
        assert!(child.wait_timeout(SHORT).unwrap().is_none());
        assert_eq!(timeout(SHORT, || child.wait_timeout(Duration::MAX).is_err()), Err(Elapsed));
        assert!(child.stdin.is_some(), "open while it is waited for with a limit");
        let mut second = Command::new("sleep").arg("1000").spawn().unwrap();
        second.kill().unwrap();
        assert_eq!(second.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(second.wait().unwrap().signal(), Some(libc::SIGKILL), "known from then on");
        second.kill().expect("nothing to do");
        assert!(child.wait().unwrap().success(), "`wait` closes its input");
        assert!(child.wait_timeout(SHORT).unwrap().unwrap().success());
    };
    runtime("fifo").run(test);
    test();
}

#[test]
fn futures_wait_for_children_and_use_their_streams() {
    let test = async || {
        let script = "head -c 300000 /dev/zero >&2; head -c 400000 /dev/zero; exit 3";
        let output = shell(script).output_async().await.unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (400_000, 300_000));
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(shell("exit 4").status_async().await.unwrap().code(), Some(4));

        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(child.stdin.as_ref().unwrap().write_async(b"to and fro").await.unwrap(), 10);
        let mut text = [0; 20];
        assert_eq!(child.stdout.as_ref().unwrap().read_async(&mut text).await.unwrap(), 10);
        assert_eq!(&text[..10], b"to and fro");
        // `wait_async` closes the input; without its input `cat` ends.
        assert!(child.wait_async().await.unwrap().success());
        assert!(child.wait_async().await.unwrap().success(), "known from then on");
        assert_eq!(child.stdout.as_ref().unwrap().read_async(&mut text).await.unwrap(), 0);

        let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
        assert_eq!(timeout_async(SHORT, sleeper.wait_async()).await.err(), Some(Elapsed));
        sleeper.kill().unwrap();
        assert_eq!(sleeper.wait_async().await.unwrap().signal(), Some(libc::SIGKILL));
    };
    two_workers("work-stealing:quantum=100us").block_on(test());
    runtime("fifo").block_on(test());
    block_on(test());
}

#[test]
fn waiting_for_children_and_their_streams_takes_no_kernel_threads() {
    const CHILDREN: usize = 20;
    let test = "waiting_for_children_and_their_streams_takes_no_kernel_threads";
    let body = || {
        let rt = runtime("fifo");
        rt.run(|| {
            let pipe = || Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
            let mut children: Vec<_> = (0..CHILDREN).map(|_| pipe().unwrap()).collect();
            let inputs: Vec<_> = children.iter_mut().map(|c| c.stdin.take().unwrap()).collect();
            // Spares that served the spawning calls end after a tenth of a second.
            heddle_rt::sleep(Duration::from_millis(500));
            let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
            let before = threads();
            scope(|s| {
                let waits = children.into_iter().map(|child| s.spawn(|| child.wait_with_output()));
                let waits: Vec<_> = waits.collect();
                yield_now();
                heddle_rt::sleep(Duration::from_millis(20));
                assert!(threads() <= before + 1, "{} threads, {before} before", threads());
                for mut input in inputs {
                    input.write_all(b"done").unwrap();
                }
                for wait in waits {
                    assert_eq!(wait.join().unwrap().unwrap().stdout, b"done");
                }
            });
        });
    };
    alone(test, body, assert_success);
}

#[test]
fn other_children_keep_their_exit_statuses() {
    runtime("fifo").run(|| {
        let mut theirs = std::process::Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        for code in 0..5 {
            let mut ours = shell(&format!("exit {code}")).spawn().unwrap();
            assert_eq!(ours.wait().unwrap().code(), Some(code));
        }
        let status = heddle_rt::blocking(|| theirs.wait()).unwrap();
        assert_eq!(status.code(), Some(7));
    });
}

#[test]
fn a_child_that_was_reaped_by_others_is_an_error_as_in_std() {
    runtime("fifo").run(|| {
        let mut child = shell("exit 0").spawn().unwrap();
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        let options = rustix::process::WaitOptions::empty();
        heddle_rt::blocking(|| rustix::process::waitpid(Some(pid), options)).unwrap();
        let error = child.wait().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECHILD));
    });
}

#[test]
fn streams_of_one_child_go_to_another_in_blocking_mode() {
    runtime("fifo").run(|| {
        let (reader, mut writer) = heddle_rt::io::pipe().unwrap();
        let mut first = Command::new("cat").stdin(reader).stdout(Stdio::piped()).spawn().unwrap();
        let between = OwnedFd::from(first.stdout.take().unwrap());
        assert!(!fcntl_getfl(&between).unwrap().contains(OFlags::NONBLOCK));
        let second = Command::new("cat").stdin(between).stdout(Stdio::piped()).spawn().unwrap();
        let writing = spawn(move || {
            writer.write_all(&[1; 200_000]).unwrap();
        });
        assert_eq!(second.wait_with_output().unwrap().stdout, [1; 200_000]);
        writing.join().unwrap();
        assert!(first.wait().unwrap().success());
    });
}

#[test]
fn a_childs_streams_go_to_std_and_come_back() {
    runtime("fifo").run(|| {
        let child = std::process::Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = heddle_rt::process::Child::from_std(child).unwrap();
        let mut stdin = child.stdin.take().unwrap().into_std().unwrap();
        stdin.write_all(b"through std").unwrap();
        drop(stdin);
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "through std");
        assert!(child.wait().unwrap().success());
    });
}
