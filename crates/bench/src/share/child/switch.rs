//! Two processes on one CPU, which give it to each other.

use super::Job;
use super::way::{Calling, Ends, Futexes, Sharing, Way, Yielding};
use super::words::{Phase, Words};
use crate::kv::Bystanders;
use crate::share::System;
use crate::share::setup::Status;
use heddle_core::Ns;
use heddle_share::{Kind, Member};
use heddle_sys::clock::now;
use heddle_sys::thread::pin;
use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long both switch at a time. A real-time thread that never sleeps is ended after half a second.
const PIECE: Ns = Ns::from_ms(10);
/// How long they sleep in between, and how often the peer looks whether that is over.
const REST: Duration = Duration::from_millis(2);
const LOOK: Duration = Duration::from_micros(500);
/// Switches between two looks at the clock.
const BETWEEN_LOOKS: u64 = 32;
/// Longer than a process takes to join a share.
const PATIENCE: Duration = Duration::from_secs(30);

/// The measurement of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::share) struct Pair {
    pub(in crate::share) system: System,
    pub(in crate::share) cpu: u32,
    /// At least so many.
    pub(in crate::share) switches: u64,
    /// This program.
    pub(in crate::share) program: PathBuf,
    /// The file and the socket of a share.
    pub(in crate::share) share: Option<(PathBuf, PathBuf)>,
    /// Processes that belong to the measurement.
    pub(in crate::share) ours: Vec<u32>,
}

/// The other process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::share) struct Peer {
    pair: Pair,
    words: PathBuf,
    /// It is a member of the share, and does nothing.
    is_idle: bool,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::share) struct Switched {
    /// Switches, of both directions, and the time for all.
    pub(in crate::share) switches: u64,
    pub(in crate::share) ns: u64,
    /// Hand-overs of all members that broke the Single Binding Rule, of all that there were.
    pub(in crate::share) broken: Option<u64>,
    /// CPU time of other processes, as a share of one CPU.
    pub(in crate::share) others: f64,
}

/// A peer, which ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or does so now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures, as the process that the runner starts.
pub(super) fn lead(pair: &Pair) -> io::Result<Switched> {
    let (words, _file, path) = Words::make()?;
    let (ends, stdio) = ends(pair.system)?;
    let mut peers = vec![start(pair, &path, false, stdio)?];
    if pair.system == System::ShareFutex {
        peers.push(start(pair, &path, true, None)?);
    }
    let member = join(pair, "leader")?;
    await_all(words, &mut peers)?;
    let ours: Vec<u32> = peers.iter().map(|peer| peer.0.id()).collect();
    let bystanders = Bystanders::watch(&[&ours, &pair.ours[..], &[std::process::id()]].concat());
    let begin = Instant::now();
    let mut switched = on_cpu(pair.cpu, || {
        let mut way = way(pair.system, 0, member, words, ends)?;
        Ok(measure(words, &mut *way, pair.switches))
    })?;
    switched.others = bystanders.used().as_secs_f64() / begin.elapsed().as_secs_f64();
    if let Some((file, _)) = &pair.share {
        switched.broken = Some(Status::of(&pair.program, file)?.broken());
    }
    Ok(switched)
}

/// Switches until the leader stops it.
pub(super) fn follow(peer: &Peer) -> io::Result<()> {
    // Before it has a thread that might be missed.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let words = Words::open(&peer.words)?;
    let member = join(&peer.pair, if peer.is_idle { "idle" } else { "peer" })?;
    words.join();
    if peer.is_idle {
        while words.phase() != Phase::Stop {
            thread::sleep(PATIENCE / 1000);
        }
    } else {
        let Pair { system, cpu, .. } = peer.pair;
        let ends = ends_of_peer(system)?;
        on_cpu(cpu, || {
            take_turns(words, &mut *way(system, 1, member, words, ends)?);
            Ok(())
        })?;
    }
    // The leader reads the counters of all members before it ends them.
    loop {
        thread::sleep(PATIENCE);
    }
}

/// Runs `work` in a thread on `cpu`.
fn on_cpu<T: Send>(cpu: u32, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let there = || {
        pin(&[cpu])?;
        work()
    };
    thread::scope(|scope| scope.spawn(there).join())
        .unwrap_or_else(|_| Err(io::Error::other("the switching thread panicked")))
}

fn join(pair: &Pair, name: &str) -> io::Result<Option<&'static Member>> {
    let Some((_, socket)) = &pair.share else { return Ok(None) };
    // A signal that is ignored by default.
    let signal = Signal::URG.as_raw();
    let member = Member::join(socket, name, Kind::BestEffort, signal);
    member.map(Some).map_err(io::Error::other)
}

/// What a side reads from and writes to.
type Descriptors = (OwnedFd, OwnedFd);
/// The standard input and output of the peer.
type OfPeer = (Stdio, Stdio);

/// Returns the descriptors of both sides, if they have any.
fn ends(system: System) -> io::Result<(Option<Descriptors>, Option<OfPeer>)> {
    match system {
        System::Pipe => {
            let [(ours, theirs), (theirs_too, ours_too)] =
                [pipe_with(PipeFlags::CLOEXEC)?, pipe_with(PipeFlags::CLOEXEC)?];
            Ok((Some((ours, ours_too)), Some((theirs_too.into(), theirs.into()))))
        }
        System::Eventfd => {
            let make = || eventfd(0, EventfdFlags::CLOEXEC);
            let (from, to) = (make()?, make()?);
            let stdio = (to.try_clone()?.into(), from.try_clone()?.into());
            Ok((Some((from, to)), Some(stdio)))
        }
        _ => Ok((None, None)),
    }
}

fn start(pair: &Pair, words: &Path, is_idle: bool, stdio: Option<OfPeer>) -> io::Result<Running> {
    let job = Job::Peer(Peer { pair: pair.clone(), words: words.into(), is_idle });
    let mut command = Command::new(&pair.program);
    command.args(["bench", "share", "--child", &serde_json::to_string(&job)?]);
    let (stdin, stdout) = stdio.unwrap_or((Stdio::null(), Stdio::null()));
    command.stdin(stdin).stdout(stdout).spawn().map(Running)
}

/// Waits until all peers are ready.
fn await_all(words: Words, peers: &mut [Running]) -> io::Result<()> {
    let begin = Instant::now();
    while words.joined() < peers.len() as u32 {
        for peer in &mut *peers {
            if let Some(status) = peer.0.try_wait()? {
                return Err(io::Error::other(format!("a peer ended early ({status})")));
            }
        }
        if begin.elapsed() > PATIENCE {
            return Err(io::Error::other("the peers did not get ready"));
        }
        thread::sleep(REST);
    }
    Ok(())
}

/// Returns how the calling thread switches: the leader's side is 0.
fn way(
    system: System,
    side: usize,
    member: Option<&'static Member>,
    words: Words,
    ends: Option<Descriptors>,
) -> io::Result<Box<dyn Way>> {
    let is_leader = side == 0;
    Ok(match (ends, member) {
        (Some((from, to)), _) => Box::new(Calling::new(Ends::new(system, from, to), is_leader)),
        (None, Some(member)) => Box::new(Sharing::new(member)),
        (None, None) if system == System::SchedYield => Box::new(Yielding::new()?),
        (None, None) => Box::new(Calling::new(Futexes::new(words, side), is_leader)),
    })
}

/// Returns the peer's ends, if it has any: its standard input and output.
fn ends_of_peer(system: System) -> io::Result<Option<Descriptors>> {
    if !matches!(system, System::Pipe | System::Eventfd) {
        return Ok(None);
    }
    let (from, to) = (io::stdin(), io::stdout());
    Ok(Some((from.as_fd().try_clone_to_owned()?, to.as_fd().try_clone_to_owned()?)))
}

/// Switches until the peer takes part. It may need this CPU to come so far, and a real-time thread that waits for long
/// without sleeping is ended: the caller rests after each [`PIECE`].
fn await_peer(words: Words, way: &mut dyn Way) {
    let (mut begin, before) = (now(), words.taken());
    while words.taken() == before {
        if now() - begin > PIECE {
            way.leave();
            thread::sleep(REST);
            way.enter();
            begin = now();
        }
        way.switch();
    }
}

/// The leader's side: pieces of [`PIECE`] until there were so many switches.
fn measure(words: Words, way: &mut dyn Way, switches: u64) -> Switched {
    let mut all = Switched::default();
    while all.switches < switches {
        words.begin(Phase::Run);
        way.enter();
        await_peer(words, way);
        let (begin, before, mut own) = (now(), words.taken(), 0);
        while now() - begin < PIECE {
            (0..BETWEEN_LOOKS).for_each(|_| way.switch());
            own += BETWEEN_LOOKS;
        }
        all.ns += (now() - begin).0;
        all.switches += own + u64::from(words.taken().wrapping_sub(before));
        words.begin(Phase::Rest);
        way.leave();
        thread::sleep(REST);
    }
    words.begin(Phase::Stop);
    way.release();
    all
}

/// The peer's side.
fn take_turns(words: Words, way: &mut dyn Way) {
    let mut is_in = false;
    loop {
        match words.phase() {
            Phase::Stop => return,
            Phase::Run => {
                if !is_in {
                    way.enter();
                    is_in = true;
                }
                words.take();
                way.switch();
            }
            Phase::Rest => {
                if is_in {
                    way.leave();
                    is_in = false;
                }
                thread::sleep(LOOK);
            }
        }
    }
}
