//! Members: how they come and go.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use heddle_core::Ns;
use heddle_share::AppMemory;
use heddle_share::abi::APPS;
use heddle_share::wire::{self, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Broker, Client, Leaving};
use crate::admission::{self, Request, Room};
use crate::events::Kind as Event;
use crate::member::{Member, are_pipes, open_anew};
use crate::realtime;

impl Broker {
    /// Admits a process, which takes part once it says that it is ready.
    pub(super) fn join(
        &mut self,
        at: usize,
        (version, class, name): (u32, u32, &str),
        now: Ns,
    ) -> Result<(), String> {
        let Some(Client { pid, uid, app: None, .. }) = self.clients[at] else {
            return Err("your program has joined already".into());
        };
        self.forget_former(pid, now);
        let request = Request { version, class, pid, uid };
        let members = std::array::from_fn(|app| self.members[app].as_ref().map(|it| it.pid));
        let (app, kind) = admission::decide(&request, &self.room(&members))?;
        let client = self.clients[at].as_mut().ok_or("it is gone")?;
        let process = admission::process(client.socket.as_fd(), pid)?;
        admission::check_cpus(pid, &self.config.cpus)?;
        let name = admission::printable_name(name);
        let (rank, weight) = self.config.place(&name, kind);
        if let Some(priority) = self.priority {
            let quota = heddle_sys::processes::cpu_quota(pid);
            admission::check_quota(pid, &self.config.cpus, quota)?;
            realtime::grant(pid, priority, rank).map_err(|error| {
                format!(
                    "the broker may not let process {pid} be real-time ({error}): run it as root, or set \
                     realtime = \"never\" in the file"
                )
            })?;
        }
        let memory = AppMemory::new(self.config.cpus.len());
        let memory =
            memory.map_err(|error| format!("no memory for another application: {error}"))?;
        let cpus = self.config.cpus.clone();
        let admitted = Message::Admitted { app: app as u32, cpus };
        // Before the program hears of it: its priority depends on its rank.
        self.memory.set_entry(app, pid, rank, weight);
        let fds = [self.memory.for_reading(), memory.for_writing()];
        let sent = wire::send(&client.socket, &admitted, &fds);
        sent.map_err(|error| format!("your program does not read what it is sent: {error}"))?;
        client.app = Some(app);
        self.last_app = app;
        self.members[app] = Some(Member {
            client: at,
            pid,
            uid,
            process,
            name,
            kind,
            rank,
            weight,
            joined: now,
            memory,
            pipes: Vec::new(),
            complaints: vec![Vec::new(); self.config.cpus.len()],
            overtime: Vec::new(),
            demoted: Vec::new(),
            demotions: 0,
        });
        Ok(())
    }

    fn room<'a>(&self, members: &'a [Option<u32>; APPS]) -> Room<'a> {
        Room {
            members,
            most: self.config.max_apps,
            last: self.last_app,
            owner: rustix::process::geteuid().as_raw(),
            is_open: self.options.everyone || self.options.group.is_some(),
        }
    }

    /// Removes what a process was before it executed the program that joins now: its connection has ended, which has
    /// not been heard yet, or a child that it forked before holds it open.
    fn forget_former(&mut self, pid: u32, now: Ns) {
        let former = self.members.iter().flatten().find(|member| member.pid == pid);
        let Some(at) = former.map(|member| member.client) else { return };
        let Some(client) = &self.clients[at] else { return };
        let mut polled = [PollFd::new(&client.socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0);
        let has_ended = ready && polled[0].revents().contains(PollFlags::HUP);
        self.drop_client(at, (!has_ended).then_some("its process has joined anew"), now);
    }

    /// Lets a member take part: it and the others learn of each other.
    pub(super) fn begin(
        &mut self,
        at: usize,
        fds: &mut Vec<OwnedFd>,
        now: Ns,
    ) -> Result<(), String> {
        let app = self.clients[at].as_ref().and_then(|client| client.app);
        let app = app.ok_or("your program is not ready, for it has not joined")?;
        let cpus = self.config.cpus.len();
        let member = self.members[app].as_mut().ok_or("your program is no member")?;
        if member.is_ready() {
            return Err("your program said already that it is ready".into());
        }
        if fds.len() != cpus || !are_pipes(fds) {
            return Err(format!("your program must send a pipe for each of {cpus} CPUs"));
        }
        for pipe in fds.iter() {
            open_anew(pipe)
                .map_err(|error| format!("the broker cannot open your pipes: {error}"))?;
        }
        member.pipes = std::mem::take(fds);
        self.events.note(now, Event::Joined, member.label(), "");
        for other in self.others(app) {
            self.introduce(other, app);
        }
        // First: one that hears of it looks whether it has equals now.
        self.memory.set_member(app, true);
        for other in self.others(app) {
            self.introduce(app, other);
        }
        Ok(())
    }

    /// Returns the members that take part, except `app`.
    fn others(&self, app: usize) -> Vec<usize> {
        let is_ready = |&other: &usize| self.members[other].as_ref().is_some_and(Member::is_ready);
        (0..APPS).filter(|&other| other != app).filter(is_ready).collect()
    }

    /// Gives what is known of member `app` to member `to`.
    fn introduce(&mut self, app: usize, to: usize) {
        let Some(member) = &self.members[app] else { return };
        let sent = member.open_pipes().and_then(|pipes| {
            let memory = std::iter::once(member.memory.for_reading());
            let fds: Vec<_> = memory.chain(pipes.iter().map(AsFd::as_fd)).collect();
            self.send(to, &Message::Peer(app as u32), &fds)
        });
        if sent.is_err() {
            self.deaf.push(to);
        }
    }

    fn send(&self, app: usize, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let client = self.members[app].as_ref().and_then(|it| self.clients[it.client].as_ref());
        client.map_or(Ok(()), |client| wire::send(&client.socket, message, fds))
    }

    pub(super) fn remove_deaf(&mut self, now: Ns) {
        while let Some(app) = self.deaf.pop() {
            let why = "your program does not read what it is sent";
            self.remove(app, Leaving::Removed(why.into()), now);
        }
    }

    /// Takes a member out, and wakes all that may wait for it.
    pub(super) fn remove(&mut self, app: usize, why: Leaving, now: Ns) {
        let Some(member) = self.members[app].take() else { return };
        self.memory.set_member(app, false);
        member.memory.reset();
        self.wake_all(&member.memory);
        self.forget_complaints(app);
        if member.is_ready() {
            for other in self.others(app) {
                let left = self.send(other, &Message::Left(app as u32), &[]);
                // What waits on words of others must look again, too.
                if let Some(other) = &self.members[other] {
                    self.wake_all(&other.memory);
                }
                if left.is_err() {
                    self.deaf.push(other);
                }
            }
        }
        if self.members.iter().all(Option::is_none) {
            self.empty_since = now;
        }
        let why = match why {
            Leaving::HungUp if admission::is_ending(&member.process, member.pid) => Leaving::Died,
            why => why,
        };
        self.let_go(&member, &why);
        let (event, why) = match why {
            Leaving::HungUp => (Event::Left, None),
            Leaving::Died => (Event::Died, None),
            Leaving::Removed(why) => (Event::Removed, Some(why)),
        };
        self.events.note(now, event, member.label(), why.as_deref().unwrap_or(""));
        if let Some(client) = self.clients[member.client].take() {
            self.close(client, why.as_deref());
        }
        self.closing.close(member.uid, member.pipes);
    }

    fn wake_all(&self, memory: &AppMemory) {
        (0..self.config.cpus.len()).for_each(|cpu| memory.wake_all_waiters_on(cpu));
    }

    /// Its number may be another's soon.
    fn forget_complaints(&mut self, app: usize) {
        let complaints = self.members.iter_mut().flatten().flat_map(|it| &mut it.complaints);
        complaints.for_each(|about| about.retain(|it| it.active != app));
    }

    /// Takes the real-time priorities from one that is no member any more, if it lives.
    fn let_go(&self, member: &Member, why: &Leaving) {
        match why {
            _ if self.priority.is_none() || admission::has_ended(&member.process) => {}
            // It stays idle where it was demoted.
            Leaving::Removed(_) if !member.overtime.is_empty() => realtime::forbid(member.pid),
            _ => realtime::revoke(member.pid),
        }
    }
}
