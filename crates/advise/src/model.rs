//! A service as the simulator can replay it.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use heddle_core::Ns;
use heddle_observe::{Burst, Group, Host, Protocol, Runtime};
use serde::{Deserialize, Serialize};

/// A service, its requests as they came, and what else ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Model {
    /// The machine.
    pub host: Host,
    /// The service's name.
    pub service: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its port.
    pub port: u16,
    /// Where requests wait.
    pub queues: Vec<Queue>,
    /// What takes them.
    pub workers: Vec<Worker>,
    /// The Heddle runtime of which they are the workers: they run all requests as tasks, as its policy says.
    pub runtime: Option<Runtime>,
    /// The demand from which on a request is long, if there are two classes.
    pub edge: Option<Ns>,
    /// The classes of requests: `all`, `short` and `long`, or those that a trace or a scenario names.
    pub classes: Vec<ClassOfRequests>,
    /// The requests, in order of arrival.
    pub requests: Vec<Request>,
    /// How long idle workers took to begin a request, as measured, waits for a CPU included.
    pub wake: Vec<Ns>,
    /// The same without waits for a CPU.
    pub wake_on_cpu: Vec<Ns>,
    /// How long workers took from an answer to the next request that waited, as measured.
    pub turnaround: Vec<Ns>,
    /// For how long its threads were runnable and did not run.
    pub run_queue: Ns,
    /// The group as a part of which it shares CPUs.
    pub group: Group,
    /// The other threads on its CPUs.
    pub neighbours: Vec<Neighbour>,
}

/// A queue of requests: a socket, or an event loop's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Queue {
    /// The inode of its socket; 0 if it is an event loop's.
    pub socket: u64,
    /// Whether it shares its port with others, so that a steering policy can choose among them.
    pub steerable: bool,
}

/// A thread that serves requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Worker {
    /// Its id.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// The index of the queue that it takes from.
    pub queue: usize,
    /// How it serves.
    pub kind: WorkerKind,
    /// Its nice value.
    pub nice: i32,
    /// The CPUs that it may use, as a list (`0-3`); empty: all.
    pub cpus: String,
}

/// How a worker serves requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerKind {
    /// One after the other, waits included.
    #[default]
    Sync,
    /// Several in turn: a request that waits holds nothing.
    EventLoop,
}

/// A class of requests, by demand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassOfRequests {
    /// `all`, or `short` and `long`.
    pub name: String,
    /// How many.
    pub requests: usize,
    /// The median of their demand.
    pub demand: Ns,
}

/// A request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// When it arrived, since the beginning of the recording.
    pub arrived: Ns,
    /// Its connection, numbered from 0.
    pub connection: u32,
    /// The queue where it waited.
    pub queue: u32,
    /// The worker that took it.
    pub worker: u32,
    /// The index of its class.
    pub class: u8,
    /// CPU time that it needs.
    pub cpu: Ns,
    /// Time that it sleeps: for a backend, a disk, a timer.
    pub sleep: Ns,
    /// Time that it waited for a CPU while it was served: not part of its demand.
    pub run_queue: Ns,
    /// From arrival to answer, as observed.
    pub response: Ns,
}

impl Request {
    /// Returns how long a worker is busy with it if it never waits for a CPU.
    #[must_use]
    pub fn demand(&self) -> Ns {
        self.cpu + self.sleep
    }
}

/// A thread of another program on the service's CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Neighbour {
    /// Its id.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// Its name.
    pub name: String,
    /// Its nice value.
    pub nice: i32,
    /// The group as a part of which it shares CPUs.
    pub group: Group,
    /// The CPUs that it may use, as a list; empty: all.
    pub cpus: String,
    /// The CPU time that it took, as a share of one CPU.
    pub share: f64,
    /// The time in which it was runnable and did not run, as a share of the time watched.
    pub waiting: f64,
    /// How long it ran while a thread of the service waited for that CPU.
    pub delayed_service: Ns,
    /// A sample of its turns, in order of time.
    pub bursts: Vec<Burst>,
}

/// Why a model cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct ModelError {
    path: PathBuf,
    #[source]
    error: io::Error,
}

impl Model {
    /// Reads a model from a file of JSON.
    ///
    /// # Errors
    /// [`ModelError`] with the file's name, and the line of the first fault.
    pub fn read(path: &Path) -> Result<Model, ModelError> {
        let wrong = |error| ModelError { path: path.into(), error };
        let file = File::open(path).map_err(wrong)?;
        serde_json::from_reader(BufReader::new(file)).map_err(|error| wrong(error.into()))
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// [`ModelError`] with the file's name.
    pub fn write(&self, path: &Path) -> Result<(), ModelError> {
        let wrong = |error| ModelError { path: path.into(), error };
        let mut out = BufWriter::new(File::create(path).map_err(wrong)?);
        serde_json::to_writer_pretty(&mut out, self).map_err(|error| wrong(error.into()))?;
        out.flush().map_err(wrong)
    }

    /// Returns the index of the class called `name`.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|class| class.name == name)
    }

    /// Returns the observed responses of a class, or of all requests.
    #[must_use]
    pub fn responses(&self, class: Option<usize>) -> Vec<Ns> {
        let wanted =
            self.requests.iter().filter(|r| class.is_none_or(|c| usize::from(r.class) == c));
        wanted.map(|request| request.response).collect()
    }

    /// Returns which share of the time that requests waited may have been for CPUs: that in which threads did not run
    /// though they were runnable.
    #[must_use]
    pub fn waits_for_cpus(&self) -> f64 {
        let waited = self.requests.iter().map(|r| (r.response - r.demand()).as_secs_f64());
        self.run_queue.as_secs_f64() / waited.sum::<f64>().max(1e-9)
    }

    /// Returns the length of the trace, from its first arrival to its last.
    #[must_use]
    pub fn span(&self) -> Ns {
        let (first, last) = (self.requests.first(), self.requests.last());
        first.zip(last).map_or(Ns::ZERO, |(first, last)| last.arrived - first.arrived)
    }

    /// Whether it is one process with several event loops: they could wait at one event queue.
    #[must_use]
    pub fn is_threads_with_loops(&self) -> bool {
        let first = self.workers.first().map(|worker| worker.process);
        let alike =
            |worker: &Worker| worker.kind == WorkerKind::EventLoop && Some(worker.process) == first;
        self.workers.len() > 1 && self.runtime.is_none() && self.workers.iter().all(alike)
    }

    /// Returns how many queues a steering policy can choose among.
    #[must_use]
    pub fn steerable(&self) -> usize {
        self.queues.iter().filter(|queue| queue.steerable).count()
    }
}
