//! A member's connection to the broker: joining, hearing of others, and looking for the next broker.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use heddle_sys::memory::{self, SharedMemory};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::{JoinError, Kind, Member, Thread};
use crate::abi::{APPS, VERSION, app_size};
use crate::handover::NO_APP;
use crate::wire::{self, Message};

/// How often a member looks for a broker that is gone.
const RECONNECT: Duration = Duration::from_millis(200);

/// What the broker gave to a member that it admits.
pub(super) struct Admission {
    pub(super) socket: OwnedFd,
    pub(super) app: usize,
    pub(super) cpus: Vec<u32>,
    pub(super) broker: OwnedFd,
    pub(super) own: OwnedFd,
}

/// What it takes to join again.
pub(super) struct Rejoin {
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) askers: Vec<OwnedFd>,
}

/// Connects, and asks to be a member.
pub(super) fn ask_to_join(path: &Path, name: &str, kind: Kind) -> Result<Admission, JoinError> {
    let socket =
        connect_to(path).map_err(|source| JoinError::NoBroker { at: path.into(), source })?;
    let wrong = |why: String| JoinError::Protocol { at: path.into(), why };
    let class = u32::from(kind == Kind::BestEffort);
    let join = Message::Join { version: VERSION, class, name: name.into() };
    wire::send(&socket, &join, &[]).map_err(|error| wrong(error.to_string()))?;
    match wire::receive(&socket).map_err(|error| wrong(error.to_string()))? {
        Some((Message::Admitted { app, cpus }, fds)) => {
            let Ok([broker, own]) = <[OwnedFd; 2]>::try_from(fds) else {
                return Err(wrong("it sent no memory".into()));
            };
            match (app as usize) < APPS && !cpus.is_empty() {
                true => Ok(Admission { socket, app: app as usize, cpus, broker, own }),
                false => Err(wrong("its answer makes no sense".into())),
            }
        }
        Some((Message::Refused(why), _)) => Err(JoinError::Refused(why)),
        Some((other, _)) => Err(wrong(format!("unexpected {other:?}"))),
        None => Err(wrong("it hung up".into())),
    }
}

/// Connects to the broker at `path`.
///
/// # Errors
/// The system's.
pub fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

impl Member {
    pub(super) fn listen_in_thread(
        &'static self,
        socket: OwnedFd,
        again: Rejoin,
    ) -> io::Result<()> {
        let builder = std::thread::Builder::new().name("heddle-share".into());
        builder.spawn(move || self.run(socket, &again)).map(drop)
    }

    /// Hears the broker, for the rest of the process.
    fn run(&'static self, mut socket: OwnedFd, again: &Rejoin) {
        self.adopt_thread(Thread::Helper);
        loop {
            let why = self.listen(&socket);
            if let Some(why) = why {
                self.mapped.store(0, Ordering::SeqCst);
                self.removed.store(true, Ordering::SeqCst);
                self.set_priority_of_workers(0);
                self.nudge_all();
                say(format_args!("the broker has removed this program: {why}"));
                return;
            }
            // The broker is gone. Members go on without it, by the order that it left.
            *self.socket.lock().unwrap_or_else(|e| e.into_inner()) = None;
            socket = self.rejoin(again);
        }
    }

    /// Looks for a broker until there is one, and becomes its member.
    fn rejoin(&'static self, again: &Rejoin) -> OwnedFd {
        loop {
            std::thread::sleep(RECONNECT);
            let Ok(admission) = ask_to_join(&again.path, &again.name, again.kind) else { continue };
            if *admission.cpus != *self.cpus || self.copy_own(&admission).is_err() {
                continue;
            }
            let started = self.begin(&admission);
            let fds: Vec<_> = again.askers.iter().map(AsFd::as_fd).collect();
            self.nudge_all();
            if started.is_ok() && wire::send(&admission.socket, &Message::Ready, &fds).is_ok() {
                return admission.socket;
            }
        }
    }

    /// Brings the state of this member's workers into the memory that a new broker has made for it.
    fn copy_own(&self, admission: &Admission) -> io::Result<()> {
        let new = SharedMemory::reserve(app_size(self.cpus.len()))?;
        new.map(&admission.own, true)?;
        for cpu in 0..self.cpus.len() {
            let (from, to) = (self.slot(cpu), self.slot_in(&new, cpu));
            to.waits_on.store(NO_APP, Ordering::Relaxed);
            to.since.store(from.since.load(Ordering::Relaxed), Ordering::Relaxed);
            to.tid.store(from.tid.load(Ordering::Relaxed), Ordering::Relaxed);
            to.cpu_time_then.store(from.cpu_time_then.load(Ordering::Relaxed), Ordering::Relaxed);
            to.state.store(from.state.load(Ordering::Acquire), Ordering::Release);
        }
        // SAFETY: nothing refers to it any more.
        unsafe { new.unmap() };
        Ok(())
    }

    /// Hears the broker until it is gone. Returns why the broker has removed this member, if it has.
    fn listen(&self, socket: &OwnedFd) -> Option<String> {
        loop {
            match wire::receive(socket) {
                Ok(Some((Message::Peer(app), fds))) if (app as usize) < APPS => {
                    // A peer that cannot be mapped is not seen, and waits until it is active by itself.
                    let _ = self.add_peer(app as usize, fds);
                }
                Ok(Some((Message::Left(app), _))) if (app as usize) < APPS => {
                    self.mapped.fetch_and(!(1 << app), Ordering::SeqCst);
                    self.hang_up(app as usize);
                    self.nudge_all();
                }
                Ok(Some((Message::Refused(why), _))) => return Some(why),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }

    fn add_peer(&self, app: usize, fds: Vec<OwnedFd>) -> io::Result<()> {
        let mut fds = fds.into_iter();
        let memory = fds.next().ok_or(io::ErrorKind::InvalidData)?;
        let size = rustix::fs::fstat(&memory)?.st_size as usize;
        if size < app_size(self.cpus.len()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.peers[app].map(&memory, false)?;
        let pipes = &self.pipes[app * self.cpus.len()..][..self.cpus.len()];
        for (pipe, fd) in pipes.iter().zip(fds) {
            let number = pipe.load(Ordering::Relaxed);
            match number {
                -1 => pipe.store(std::os::fd::IntoRawFd::into_raw_fd(fd), Ordering::Relaxed),
                _ => memory::replace_descriptor(number, &fd)?,
            }
        }
        self.mapped.fetch_or(1 << app, Ordering::SeqCst);
        (0..self.cpus.len()).for_each(|cpu| self.look_for_equals(cpu));
        self.nudge_all();
        Ok(())
    }

    /// Lets the descriptors of a peer that is gone stand for `/dev/null`: a worker may be about to write to one.
    fn hang_up(&self, app: usize) {
        let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") else { return };
        for pipe in &self.pipes[app * self.cpus.len()..][..self.cpus.len()] {
            let number = pipe.load(Ordering::Relaxed);
            if number >= 0 {
                let _ = memory::replace_descriptor(number, &null);
            }
        }
    }
}

fn say(what: fmt::Arguments<'_>) {
    let text = format!("heddle: {what}\n");
    let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
}
