//! The broker: one thread that hears clients and watches processes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_core::Ns;
use heddle_share::abi::APPS;
use heddle_share::wire::{self, MAX_ANSWER, Message, NoMessage, Packet};
use heddle_share::{AppMemory, BrokerMemory};
use heddle_sys::scheduling::{self, Scheduling};
use heddle_sys::{clock, socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::admission::{self, Request, Room};
use crate::budget::Budget;
use crate::closing::Closing;
use crate::config::{Config, Realtime};
use crate::cpus;
use crate::events::{Events, Kind as Event};
use crate::listen::Listener;
use crate::member::{Member, Overtime, are_pipes, open_anew};
use crate::overtime::{Seen, judge};
use crate::paths::{Owner, UnusablePath};
use crate::realtime;
use crate::report::{Report, ShareReport};
use crate::status;

/// Connections at a time. If all are taken, the oldest that is no member's ends for a new one.
const CLIENTS: usize = 64;

/// Connections in a second, and at one look.
const ACCEPTS: u64 = 200;
const ACCEPTS_AT_ONCE: usize = 8;

/// Packets of a client in a second, and more for each CPU: a member that waits complains a hundred times.
const PACKETS: u64 = 200;
const PACKETS_PER_CPU: u64 = 200;

/// How many packets a request counts that takes the broker longer.
const COSTLY: u64 = 20;

/// How often the broker looks at what it waits for.
const LOOK: Ns = Ns::from_ms(100);

/// How long a demoted member may go on before it is removed.
const REMOVE_AFTER: Ns = Ns::from_ms(1000);

/// Who may connect, and when the broker ends by itself.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The members of this group (a name or a number) may join, besides root and the broker's user.
    pub group: Option<String>,
    /// Every user may join.
    pub everyone: bool,
    /// It ends once it has had no member for so long.
    pub until_idle: Option<Duration>,
}

/// Why a broker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was told to.
    Stopped,
    /// It had no member for long.
    Idle,
}

/// Why a broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its socket cannot be where it should be.
    #[error(transparent)]
    Path(#[from] UnusablePath),
    /// It cannot be as its file wants it.
    #[error("{0}")]
    Refused(String),
    /// The system refuses.
    #[error("{what}: {source}")]
    System {
        /// What failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

/// A connection.
#[derive(Debug)]
struct Client {
    socket: OwnedFd,
    pid: u32,
    uid: u32,
    since: Ns,
    budget: Budget,
    /// The member's number, if it is one's.
    app: Option<usize>,
}

/// Why a member is one no more.
#[derive(Debug)]
enum Leaving {
    /// It has closed its connection.
    HungUp,
    /// Its process has ended.
    Died,
    /// The broker removes it: why.
    Removed(String),
}

/// What there is to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Stop,
    Listener,
    Process(usize),
    Client(usize),
}

/// A broker. See the crate.
#[derive(Debug)]
pub struct Broker {
    config: Config,
    options: Options,
    file: PathBuf,
    path: PathBuf,
    listener: Listener,
    /// The priority of active workers; `None` if they are ordinary threads.
    priority: Option<u32>,
    memory: BrokerMemory,
    clients: Vec<Option<Client>>,
    members: [Option<Member>; APPS],
    last_app: usize,
    accepts: Budget,
    closing: Closing,
    events: Events,
    started: Ns,
    /// When the last member left.
    empty_since: Ns,
    /// Members to which nothing could be sent.
    deaf: Vec<usize>,
}

impl Broker {
    /// Starts to listen for the share that `file` describes as `config`. [`Broker::run`] does the rest.
    ///
    /// # Errors
    /// [`StartError`]: there is another broker, CPUs are missing, a privilege is.
    pub fn start(config: Config, file: &Path, options: Options) -> Result<Broker, StartError> {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.into());
        let file = std::fs::canonicalize(&file).unwrap_or(file);
        let priority = check_machine(&config)?;
        let owner = Owner::current();
        if config.socket.is_none() {
            owner.make_folder()?;
        }
        let path = config.socket_path(&file, &owner)?;
        raise_descriptors();
        let listener = Listener::at(&path, &options)?;
        let memory = BrokerMemory::new(config.cpus.len(), priority.unwrap_or(0), config.slice);
        let failed =
            |source| StartError::System { what: "cannot make shared memory".into(), source };
        let now = clock::now();
        Ok(Broker {
            memory: memory.map_err(failed)?,
            config,
            options,
            file,
            path,
            listener,
            priority,
            clients: (0..CLIENTS).map(|_| None).collect(),
            members: [const { None }; APPS],
            last_app: APPS - 1,
            accepts: Budget::new(ACCEPTS, now),
            closing: Closing::default(),
            events: Events::default(),
            started: now,
            empty_since: now,
            deaf: Vec::new(),
        })
    }

    /// Returns where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.path
    }

    /// Returns the real-time priority of active workers; `None` if they are ordinary threads.
    #[must_use]
    pub fn priority(&self) -> Option<u32> {
        self.priority
    }

    /// Serves until `stop` is readable, or until it is idle for as long as the options say. Members go on without it.
    /// The calling thread becomes a real-time thread if members are.
    ///
    /// # Errors
    /// The system's: it cannot wait.
    pub fn run(mut self, stop: impl AsFd) -> io::Result<End> {
        if let Some(priority) = self.priority {
            realtime::raise_own(priority)?;
        }
        loop {
            let ready = self.wait(stop.as_fd())?;
            if ready.contains(&Source::Stop) {
                return Ok(End::Stopped);
            }
            for source in ready {
                let now = clock::now();
                match source {
                    Source::Stop => {}
                    Source::Process(app) => self.remove(app, Leaving::Died, now),
                    Source::Client(client) => self.hear(client, now),
                    Source::Listener => self.accept(now),
                }
                self.remove_deaf(now);
            }
            let now = clock::now();
            self.watch_overtime(now);
            self.remove_deaf(now);
            if self.idle_until().is_some_and(|until| until <= now) {
                return Ok(End::Idle);
            }
        }
    }

    /// Waits until there is something to do. Processes come before connections, and new connections last.
    fn wait(&mut self, stop: BorrowedFd<'_>) -> io::Result<Vec<Source>> {
        let now = clock::now();
        let accepts = self.accepts.has_any(now);
        let timeout = self.timeout(now, accepts).map(|time| Timespec {
            tv_sec: (time.0 / 1_000_000_000).cast_signed(),
            tv_nsec: (time.0 % 1_000_000_000).cast_signed(),
        });
        let mut sources = vec![(Source::Stop, stop)];
        for (app, member) in self.members.iter().enumerate() {
            sources.extend(member.as_ref().map(|it| (Source::Process(app), it.process.as_fd())));
        }
        for (client, it) in self.clients.iter().enumerate() {
            sources.extend(it.as_ref().map(|it| (Source::Client(client), it.socket.as_fd())));
        }
        if accepts {
            sources.push((Source::Listener, self.listener.socket.as_fd()));
        }
        let to_poll = |(_, fd): &(Source, _)| PollFd::from_borrowed_fd(*fd, PollFlags::IN);
        let mut polled: Vec<PollFd<'_>> = sources.iter().map(to_poll).collect();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let ready = sources.iter().zip(&polled).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|((source, _), _)| *source).collect())
    }

    /// Returns how long to wait at most; forever if nothing is pending.
    fn timeout(&self, now: Ns, accepts: bool) -> Option<Ns> {
        let is_pending =
            !accepts || self.members.iter().flatten().any(|member| !member.overtime.is_empty());
        let look = is_pending.then_some(LOOK);
        let idle = self.idle_until().map(|until| until - now);
        look.into_iter().chain(idle).min()
    }

    /// Returns when the broker ends if no member comes.
    fn idle_until(&self) -> Option<Ns> {
        let after = self.options.until_idle?;
        let after = Ns(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        self.members.iter().all(Option::is_none).then(|| self.empty_since + after)
    }

    fn accept(&mut self, now: Ns) {
        for _ in 0..ACCEPTS_AT_ONCE {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.listener.socket, flags) {
                Ok(socket) if self.accepts.take(1, now) => self.add_client(socket, now),
                // It waits no longer, and may come again.
                Ok(_) => return,
                Err(
                    rustix::io::Errno::AGAIN
                    | rustix::io::Errno::INTR
                    | rustix::io::Errno::CONNABORTED,
                ) => return,
                Err(_) => {
                    // Out of descriptors: those who wait do so for a moment.
                    self.accepts.take(u64::MAX, now);
                    return;
                }
            }
        }
    }

    fn add_client(&mut self, socket: OwnedFd, now: Ns) {
        let Ok((pid, uid, _)) = socket::peer_credentials(socket.as_fd()) else { return };
        let budget = PACKETS + PACKETS_PER_CPU * self.config.cpus.len() as u64;
        let budget = Budget::new(budget, now);
        let client = Client { socket, pid, uid, since: now, budget, app: None };
        if self.closing.is_stuck(uid) {
            let why = "descriptors that you sent cannot be closed: end the programs that sent them";
            return self.close(client, Some(why));
        }
        let free = self.clients.iter().position(Option::is_none).or_else(|| {
            let oldest = self.oldest_stranger()?;
            self.drop_client(oldest, Some("there are too many connections: try again"), now);
            Some(oldest)
        });
        match free {
            Some(free) => self.clients[free] = Some(client),
            None => self.close(client, Some("there are too many connections: try again")),
        }
    }

    /// Returns the oldest connection that is no member's.
    fn oldest_stranger(&self) -> Option<usize> {
        let clients = self.clients.iter().enumerate();
        let strangers = clients.filter_map(|(at, it)| {
            it.as_ref().filter(|it| it.app.is_none()).map(|it| (it.since, at))
        });
        strangers.min().map(|(_, at)| at)
    }

    /// Hears one packet of a client.
    fn hear(&mut self, at: usize, now: Ns) {
        let Some(client) = &mut self.clients[at] else { return };
        let Packet { message, mut fds } = match wire::receive_packet(&client.socket) {
            Ok(packet) => packet,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return self.drop_client(at, None, now),
        };
        let uid = client.uid;
        let cost = match message {
            Ok(Message::Join { .. } | Message::Status) => COSTLY,
            _ => 1,
        };
        let refusal = match message {
            _ if !client.budget.take(cost, now) => {
                Some("your program sends more than a program of a share needs to".into())
            }
            Err(NoMessage::Gone) => {
                self.closing.close(uid, fds);
                return self.drop_client(at, None, now);
            }
            Err(NoMessage::Malformed) => Some("that is no message of this protocol".into()),
            Ok(Message::Join { version, class, name }) => {
                self.join(at, (version, class, &name), now).err()
            }
            Ok(Message::Ready) => self.begin(at, &mut fds, now).err(),
            Ok(Message::Alert(cpu)) => self.heed(at, cpu as usize, now).err(),
            Ok(Message::Status) => self.answer(at, now).err(),
            Ok(_) => Some("only a broker says that".into()),
        };
        self.closing.close(uid, fds);
        if let Some(why) = refusal {
            self.drop_client(at, Some(&why), now);
        }
    }

    /// Ends a connection, and the membership that hangs on it.
    fn drop_client(&mut self, at: usize, why: Option<&str>, now: Ns) {
        let Some(client) = &self.clients[at] else { return };
        match (client.app, why) {
            (Some(app), Some(why)) => self.remove(app, Leaving::Removed(why.into()), now),
            (Some(app), None) => self.remove(app, Leaving::HungUp, now),
            (None, why) => {
                if let Some(client) = self.clients[at].take() {
                    self.close(client, why);
                }
            }
        }
    }

    /// Closes a connection, with a last word.
    fn close(&mut self, client: Client, why: Option<&str>) {
        if let Some(why) = why {
            let _ = wire::send(&client.socket, &Message::Refused(why.into()), &[]);
        }
        // The client learns of it at once, however long the rest takes.
        let _ = shutdown(&client.socket, Shutdown::Both);
        self.closing.close_connection(client.uid, client.socket);
    }

    /// Admits a process, which takes part once it says that it is ready.
    fn join(
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
        if let Some(priority) = self.priority {
            realtime::grant(pid, priority).map_err(|error| {
                format!("the broker may not let process {pid} be real-time ({error}): run it as root, or set realtime = \"never\"")
            })?;
        }
        let memory = AppMemory::new(self.config.cpus.len());
        let memory =
            memory.map_err(|error| format!("no memory for another application: {error}"))?;
        let cpus = self.config.cpus.clone();
        let admitted = Message::Admitted { app: app as u32, cpus };
        let fds = [self.memory.for_reading(), memory.for_writing()];
        let sent = wire::send(&client.socket, &admitted, &fds);
        sent.map_err(|error| format!("your program does not read what it is sent: {error}"))?;
        client.app = Some(app);
        let name = admission::printable_name(name);
        let (rank, weight) = self.config.place(&name, kind);
        self.memory.set_entry(app, pid, rank, weight);
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
            complaints: vec![None; self.config.cpus.len()],
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
    /// not been heard yet.
    fn forget_former(&mut self, pid: u32, now: Ns) {
        let former = self.members.iter().flatten().find(|member| member.pid == pid);
        let Some(at) = former.map(|member| member.client) else { return };
        let Some(client) = &self.clients[at] else { return };
        let mut polled = [PollFd::new(&client.socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0);
        if ready && polled[0].revents().contains(PollFlags::HUP) {
            self.drop_client(at, None, now);
        }
    }

    /// Lets a member take part: it and the others learn of each other.
    fn begin(&mut self, at: usize, fds: &mut Vec<OwnedFd>, now: Ns) -> Result<(), String> {
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
        for other in self.others(app) {
            self.introduce(app, other);
        }
        self.memory.set_member(app, true);
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

    fn remove_deaf(&mut self, now: Ns) {
        while let Some(app) = self.deaf.pop() {
            let why = "your program does not read what it is sent";
            self.remove(app, Leaving::Removed(why.into()), now);
        }
    }

    /// Takes a member out, and wakes all that may wait for it.
    fn remove(&mut self, app: usize, why: Leaving, now: Ns) {
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
        complaints.filter(|it| it.is_some_and(|it| it.active == app)).for_each(|it| *it = None);
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

    /// A member has waited for long: takes the CPU from one that keeps it.
    fn heed(&mut self, at: usize, cpu: usize, now: Ns) -> Result<(), String> {
        let app = self.clients[at].as_ref().and_then(|client| client.app);
        let app = app.ok_or("your program waits for no CPU, for it has not joined")?;
        if cpu >= self.config.cpus.len() {
            return Err(format!("there is no shared CPU with index {cpu}"));
        }
        let seen: Vec<Seen> = self.seen_on(cpu);
        let Some(waiting) = &mut self.members[app] else { return Ok(()) };
        let complaint = &mut waiting.complaints[cpu];
        let Some(found) = judge(&seen, app, complaint, self.config.slice, now) else {
            return Ok(());
        };
        let waiter = format!("{} (process {})", waiting.name, waiting.pid);
        self.demote(found.active, cpu, found.word, &waiter, now);
        Ok(())
    }

    fn seen_on(&self, cpu: usize) -> Vec<Seen> {
        let members = self.members.iter().enumerate();
        let ready = members
            .filter_map(|(app, it)| it.as_ref().filter(|it| it.is_ready()).map(|it| (app, it)));
        let seen = |(app, it): (usize, &Member)| Seen {
            app,
            rank: it.rank,
            weight: it.weight,
            slot: it.memory.snapshot(cpu),
        };
        ready.map(seen).collect()
    }

    /// Takes the real-time priority from a member that keeps a CPU.
    fn demote(&mut self, app: usize, cpu: usize, word: u32, waiter: &str, now: Ns) {
        let is_realtime = self.priority.is_some();
        let Some(member) = &mut self.members[app] else { return };
        if member.overtime.iter().any(|it| it.cpu == cpu && it.word == word) {
            return;
        }
        member.overtime.push(Overtime { cpu, word, since: now });
        member.demotions += 1;
        if !admission::has_ended(&member.process) {
            let threads = match is_realtime {
                true => realtime::demote(member.pid, Scheduling::IDLE),
                false => realtime::make_idle(member.pid, member.memory.snapshot(cpu).tid)
                    .into_iter()
                    .collect(),
            };
            member.demoted.extend(threads);
        }
        let cpu = self.config.cpus[cpu];
        let why = format!("it keeps CPU {cpu}, for which {waiter} waits");
        self.events.note(now, Event::Demoted, member.label(), &why);
    }

    /// Gives demoted members that have let go their scheduling back, and removes those that have not.
    fn watch_overtime(&mut self, now: Ns) {
        for app in 0..APPS {
            let Some(member) = &mut self.members[app] else { continue };
            if member.overtime.is_empty() {
                continue;
            }
            let memory = &member.memory;
            member.overtime.retain(|it| memory.snapshot(it.cpu).word == it.word);
            if let Some(late) = member.overtime.iter().find(|it| now - it.since >= REMOVE_AFTER) {
                let cpu = self.config.cpus[late.cpu];
                let why =
                    format!("it kept CPU {cpu} for more than a second, for which others wait");
                self.remove(app, Leaving::Removed(why), now);
            } else if member.overtime.is_empty() {
                let demoted = std::mem::take(&mut member.demoted);
                if !admission::has_ended(&member.process) {
                    realtime::restore(member.pid, &demoted);
                }
            }
        }
    }

    fn answer(&mut self, at: usize, now: Ns) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("the broker cannot answer: {error}");
        let text = serde_json::to_string(&self.report(now)).map_err(|error| failed(&error))?;
        let Some(client) = &self.clients[at] else { return Ok(()) };
        let sent = match text.len() <= MAX_ANSWER {
            true => wire::send(&client.socket, &Message::Answer(text), &[]),
            false => status::in_file(&text).and_then(|file| {
                wire::send(&client.socket, &Message::Answer(String::new()), &[file.as_fd()])
            }),
        };
        sent.map_err(|error| failed(&error))
    }

    /// Returns how things are.
    fn report(&self, now: Ns) -> Report {
        let cpus = &self.config.cpus;
        let members = self.members.iter().enumerate();
        let apps = members.filter_map(|(app, it)| Some(status::app(app, it.as_ref()?, cpus, now)));
        let apps: Vec<_> = apps.collect();
        let cores = cpus.iter().enumerate().map(|(index, &cpu)| status::core(index, cpu, &apps));
        Report {
            schema: 1,
            share: ShareReport {
                socket: self.path.to_string_lossy().into(),
                file: self.file.to_string_lossy().into(),
                pid: std::process::id(),
                cpus: cpus.clone(),
                policy: self.config.policy.clone(),
                realtime: self.priority.is_some(),
                priority: self.priority.unwrap_or(0),
                slice_ns: self.config.slice.0,
                uptime_ms: (now - self.started).0 / 1_000_000,
            },
            cores: cores.collect(),
            events: self.events.report(now),
            apps,
        }
    }
}

/// Checks that the CPUs are there; returns the real-time priority, if there is one.
fn check_machine(config: &Config) -> Result<Option<u32>, StartError> {
    let shown = |cpus: &[u32]| cpus::format(cpus);
    let online = cpus::online().map_err(|source| StartError::System {
        what: "cannot read which CPUs are online".into(),
        source,
    })?;
    let missing: Vec<u32> =
        config.cpus.iter().copied().filter(|cpu| !online.contains(cpu)).collect();
    if !missing.is_empty() {
        return Err(StartError::Refused(format!(
            "CPUs {} of the share are not online; those online are {}",
            shown(&missing),
            shown(&online)
        )));
    }
    // More CPUs than a mask has: then it cannot be checked.
    let missing = scheduling::mask(0).map_or(Vec::new(), |mask| cpus::missing(&config.cpus, &mask));
    if !missing.is_empty() {
        return Err(StartError::Refused(format!(
            "this process may not run on CPUs {} of the share: start it without taskset, and in a cgroup whose cpuset \
             has them",
            shown(&missing)
        )));
    }
    let permitted = realtime::check(config.priority);
    let priority = match (config.realtime, permitted) {
        (Realtime::Never, _) | (Realtime::Auto, Err(_)) => None,
        (Realtime::Always, Err(why)) => {
            return Err(StartError::Refused(format!("realtime = \"always\": the broker {why}")));
        }
        (_, Ok(())) => Some(config.priority),
    };
    let is_whole = online.iter().all(|cpu| config.cpus.contains(cpu));
    if priority.is_some() && is_whole && !config.whole_machine {
        return Err(StartError::Refused(format!(
            "the share has all online CPUs ({}), and its workers would be real-time: nothing else would run beside them \
             for most of the time; leave a CPU out of `cpus`, or set realtime = \"never\" or whole_machine = true",
            shown(&online)
        )));
    }
    Ok(priority)
}

/// Raises the limit of descriptors to its maximum: each member has one for each CPU.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
