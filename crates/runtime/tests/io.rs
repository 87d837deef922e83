//! Pipes and the readiness of any descriptor: waits leave the worker to other tasks.

mod common;

use common::{runtime, two_workers};
use heddle_rt::io::{Pollable, pipe};
use heddle_rt::net::unix::{SocketAddr, UnixListener, UnixStream};
use heddle_rt::process::Command;
use heddle_rt::signal::{SIGWINCH, Signals};
use heddle_rt::sync::{CancellationToken, Cancelled};
use heddle_rt::{Elapsed, scope, spawn, timeout, yield_now};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(5);

#[test]
fn bytes_go_through_a_pipe_between_tasks_of_one_worker() {
    for policy in ["fifo", "two-queue:quantum=100us"] {
        runtime(policy).run(|| {
            let (mut reader, mut writer) = pipe().unwrap();
            let sent: Vec<u8> = (0..1_000_000u32).map(|i| (i * 7) as u8).collect();
            let copy = sent.clone();
            let writing = spawn(move || writer.write_all(&copy));
            let mut received = Vec::new();
            reader.read_to_end(&mut received).unwrap();
            assert!(received == sent, "all, and then the end");
            writing.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_pipe_without_readers_is_broken_and_clones_share_an_end() {
    runtime("fifo").run(|| {
        let (mut reader, mut writer) = pipe().unwrap();
        let mut second = writer.try_clone().unwrap();
        writer.write_all(b"one ").unwrap();
        drop(writer);
        second.write_all(b"two").unwrap();
        drop(second);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two");
        let (reader, mut writer) = pipe().unwrap();
        let full = timeout(SHORT, || writer.write_all(&vec![0; 1 << 20]).unwrap_err().kind());
        assert_eq!(full, Err(Elapsed), "a limit ends the wait for room");
        drop(reader);
        assert_eq!(writer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn ordinary_threads_use_pipes_too() {
    let (mut reader, mut writer) = pipe().unwrap();
    let thread = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    std::thread::sleep(SHORT);
    writer.write_all(b"from thread to thread").unwrap();
    drop(writer);
    assert_eq!(thread.join().unwrap().unwrap(), "from thread to thread");
}

#[test]
fn pipes_go_to_std_in_blocking_mode_and_come_back() {
    let (reader, writer) = pipe().unwrap();
    let (mut reader, writer) = (reader.into_std().unwrap(), writer.into_std().unwrap());
    // Would fail with `WouldBlock` otherwise.
    let thread = std::thread::spawn(move || reader.read(&mut [0; 8]));
    std::thread::sleep(SHORT);
    let mut writer = heddle_rt::io::PipeWriter::try_from(OwnedFd::from(writer)).unwrap();
    writer.write_all(b"bytes").unwrap();
    assert_eq!(thread.join().unwrap().unwrap(), 5);
}

/// A counter of events, of which a read takes one.
fn counter() -> Pollable<OwnedFd> {
    let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE;
    let fd = eventfd(0, flags).unwrap();
    Pollable::new(fd).unwrap()
}

fn take(counter: &OwnedFd) -> std::io::Result<u64> {
    let mut value = [0; 8];
    rustix::io::read(counter, &mut value)?;
    Ok(u64::from_ne_bytes(value))
}

fn add(counter: &Pollable<OwnedFd>, value: u64) {
    counter.write_with(|fd| Ok(rustix::io::write(fd, &value.to_ne_bytes())?)).unwrap();
}

#[test]
fn tasks_wait_for_an_event_counter() {
    for rt in [runtime("fifo"), two_workers("work-stealing:quantum=100us")] {
        rt.run(|| {
            let counter = counter();
            scope(|s| {
                let takers = (0..4).map(|_| s.spawn(|| counter.read_with(take).unwrap()));
                let takers: Vec<_> = takers.collect();
                yield_now();
                // One edge: the first to wake passes it on.
                add(&counter, 4);
                takers.into_iter().for_each(|task| assert_eq!(task.join().unwrap(), 1));
            });
            assert_eq!(counter.try_io(take).unwrap_err().kind(), ErrorKind::WouldBlock);
            add(&counter, 3);
            assert_eq!(counter.try_io(take).unwrap(), 1);
        });
    }
}

#[test]
fn waiting_for_a_kernel_timer_leaves_the_worker_to_others() {
    runtime("fifo").run(|| {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let soon =
            Itimerspec { it_interval: zero, it_value: Timespec { tv_sec: 0, tv_nsec: 5_000_000 } };
        // A blocking descriptor: waiting does not depend on the mode.
        let timer = Pollable::new(timer).unwrap();
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &soon).unwrap();
        scope(|s| {
            let waits = s.spawn(|| timer.wait_readable());
            let others = s.spawn(|| (0..10).for_each(|_| yield_now()));
            others.join().unwrap();
            waits.join().unwrap().unwrap();
        });
        timer.wait_readable_timeout(Duration::ZERO).expect("still ready");
        assert_eq!(take(timer.get_ref()).unwrap(), 1);
        let late = timer.wait_readable_timeout(SHORT).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut, "it rings once");
    });
}

#[test]
fn waits_end_at_their_timeout_and_at_a_limit() {
    let test = || {
        let counter = counter();
        let late = counter.wait_readable_timeout(SHORT).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert_eq!(timeout(SHORT, || counter.wait_readable().is_err()), Err(Elapsed));
        counter.wait_writable().unwrap();
        add(&counter, u64::MAX - 1);
        let full = counter.wait_writable_timeout(SHORT).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::TimedOut);
        counter.wait_readable().unwrap();
    };
    runtime("fifo").run(test);
    std::thread::spawn(test).join().expect("in an ordinary thread, too");
}

#[test]
fn what_cannot_be_watched_is_refused_with_the_reason() {
    runtime("fifo").run(|| {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let refused = Pollable::new(file).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("use heddle::fs or heddle::blocking"), "{refused}");

        let counter = counter();
        let again = Pollable::new(counter.get_ref()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        let fd = counter.into_inner();
        Pollable::new(fd).expect("the first registration has ended");
    });
}

#[test]
fn a_pollable_of_a_reader_and_writer_reads_and_writes() {
    runtime("fifo").run(|| {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let [mut here, mut there] = [here, there].map(|socket| {
            let socket = Pollable::new(socket).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        let writes = spawn(move || here.write_all(&[7; 500_000]));
        let mut all = Vec::new();
        there.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 500_000);
        writes.join().unwrap().unwrap();
    });
}

#[test]
fn cancellation_ends_every_kind_of_wait() {
    let (mut reader, _writer) = pipe().unwrap();
    let counter = counter();
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let signals = Signals::new([SIGWINCH]).unwrap();
    let name = format!("heddle-cancelled-{}", std::process::id());
    let name = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&name).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect_addr(&name).unwrap();
    let waits: [&mut (dyn FnMut() -> std::io::Result<()> + Send); 5] = [
        &mut || reader.read(&mut [0]).map(drop),
        &mut || counter.wait_readable(),
        &mut || child.wait().map(drop),
        &mut || signals.recv().map(drop),
        // Its backlog is full.
        &mut || UnixStream::connect_addr(&name).map(drop),
    ];
    runtime("fifo").run(|| {
        for wait in waits {
            let token = CancellationToken::new();
            scope(|s| {
                let task = s.spawn(|| token.run_until_cancelled(wait));
                heddle_rt::sleep(SHORT);
                token.cancel();
                assert_eq!(task.join().unwrap().unwrap_err(), Cancelled);
            });
        }
    });
    child.kill().unwrap();
    child.wait().unwrap();
}
