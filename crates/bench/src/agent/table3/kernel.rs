//! Costs of the kernel's own operations on this machine, in the paper's terms.

use super::super::testbed::Sleeper;
use super::{Medians, Table3Options};
use heddle_core::Ns;
use heddle_metrics::Histogram;
use heddle_sys::clock;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::thread;
use std::time::Duration;

/// Pause between two wakeups, so that the CPU is idle again.
const PAUSE: Duration = Duration::from_micros(200);

/// Measures all, and returns the median of a wakeup.
pub(super) fn measure(options: &Table3Options, into: &mut Medians<'_>) -> io::Result<Ns> {
    let times = options.samples * 10;
    into.mean("syscall_ns", syscall(times));
    into.mean("pthread_switch_ns", yields(options.thread_cpu, times)?);
    into.mean("sleep_switch_ns", pipes(options.thread_cpu, options.samples)?);
    let wakeup = wakeup(options)?;
    into.add("wakeup_ns", &wakeup);
    Ok(wakeup.p50())
}

fn per(begin: Ns, times: u32) -> f64 {
    (clock::now() - begin).0 as f64 / f64::from(times.max(1))
}

fn syscall(times: u32) -> f64 {
    let begin = clock::now();
    for _ in 0..times {
        std::hint::black_box(rustix::process::getppid());
    }
    per(begin, times)
}

/// Two threads that yield to each other; their CPU time, so that others on the CPU do not count.
fn yields(cpu: u32, times: u32) -> io::Result<f64> {
    let player = move || -> io::Result<Ns> {
        heddle_sys::thread::pin(&[cpu])?;
        let begin = clock::thread_cpu_time();
        (0..times).for_each(|_| thread::yield_now());
        Ok(clock::thread_cpu_time() - begin)
    };
    let threads = [thread::spawn(player), thread::spawn(player)];
    let mut used = Ns::ZERO;
    for thread in threads {
        used += thread.join().map_err(|_| io::Error::other("a thread panicked"))??;
    }
    Ok(used.0 as f64 / f64::from(2 * times.max(1)))
}

/// Two threads on one CPU that pass a byte: each switch is a sleep and a wakeup.
fn pipes(cpu: u32, times: u32) -> io::Result<f64> {
    let ((mut ping, mut to_other), (mut pong, mut to_me)) = (pipe()?, pipe()?);
    let other = thread::spawn(move || -> io::Result<()> {
        heddle_sys::thread::pin(&[cpu])?;
        (0..times).try_for_each(|_| pass(&mut ping, &mut to_me))
    });
    let player = thread::spawn(move || -> io::Result<f64> {
        heddle_sys::thread::pin(&[cpu])?;
        let begin = clock::now();
        for _ in 0..times {
            to_other.write_all(&[1])?;
            pong.read_exact(&mut [0; 1])?;
        }
        Ok(per(begin, 2 * times))
    });
    let panicked = |_| io::Error::other("a thread panicked");
    let took = player.join().map_err(panicked)??;
    other.join().map_err(panicked)??;
    Ok(took)
}

fn pass(from: &mut PipeReader, to: &mut PipeWriter) -> io::Result<()> {
    from.read_exact(&mut [0; 1])?;
    to.write_all(&[1])
}

/// This thread wakes a thread on another, idle CPU.
fn wakeup(options: &Table3Options) -> io::Result<Histogram> {
    let mut sleeper = Sleeper::start(options.sleeper(Ns::ZERO))?;
    heddle_sys::thread::pin(&[options.agent_cpu])?;
    sleeper.wake(Ns::ZERO)?;
    for _ in 0..options.samples {
        thread::sleep(PAUSE);
        sleeper.wake(clock::now())?;
    }
    sleeper.finish()
}
