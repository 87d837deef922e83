//! The broker: one thread that hears clients and watches processes.

mod connections;
mod demotion;
mod membership;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use heddle_core::Ns;
use heddle_share::BrokerMemory;
use heddle_share::abi::APPS;
use heddle_share::wire::{self, MAX_ANSWER, Message};
use heddle_sys::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::budget::Budget;
use crate::closing::Closing;
use crate::config::Config;
use crate::events::Events;
use crate::listen::Listener;
use crate::member::Member;
use crate::paths::Owner;
use crate::realtime;
use crate::report::{Report, ShareReport};
use crate::start::{Options, StartError, check_machine};
use crate::status;

/// Connections at a time. If all are taken, the oldest that is no member's ends for a new one.
const CLIENTS: usize = 64;

/// Connections that are accepted in a second.
const ACCEPTS: u64 = 200;

/// How often the broker looks at what it waits for.
const LOOK: Ns = Ns::from_ms(100);

/// Why a broker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was stopped.
    Stopped,
    /// It had no member for long.
    Idle,
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
        // Each member has one for each CPU.
        heddle_sys::limits::raise_descriptors();
        let listener = Listener::at(&path, &options)?;
        let memory = BrokerMemory::new(priority.unwrap_or(0), config.slice);
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
        let mut apps: Vec<_> = apps.collect();
        if self.priority.is_some() {
            status::mark_preempted(&mut apps);
        }
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
