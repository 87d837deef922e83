//! The client of steering: served by heddled, through its socket, or, for root without it, by this process.
//!
//! ```no_run
//! use heddle_steer::client::Steering;
//! # fn main() -> Result<(), heddle_steer::request::Error> {
//! for attachment in Steering::open(false)?.list()? {
//!     println!("{} {} at {}", attachment.id, attachment.policy, attachment.address);
//! }
//! # Ok(())
//! # }
//! ```

mod connection;
mod deploy;
pub mod wire;

use std::env;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub use connection::Connection;
pub use deploy::{Deployment, policy_of};

use heddle_bpf::Map;

use crate::engine::{Caller, Engine, Served};
use crate::executor::{Executor, LINES, Lines};
use crate::request::{
    Answer, Attachment, Ended, Error, ErrorKind, MapInfo, Policy, Request, Stats,
};

/// Heddled's default socket, unless [`SOCKET_VARIABLE`] names another.
pub const SOCKET: &str = "/run/heddle/heddled.sock";
/// The environment variable that names another socket.
pub const SOCKET_VARIABLE: &str = "HEDDLE_SOCKET";

/// Returns the path of heddled's socket: [`SOCKET_VARIABLE`], or [`SOCKET`].
#[must_use]
pub fn socket() -> PathBuf {
    named_socket().unwrap_or_else(|| SOCKET.into())
}

fn named_socket() -> Option<PathBuf> {
    env::var_os(SOCKET_VARIABLE).map(PathBuf::from)
}

/// Steering on this machine.
pub struct Steering {
    way: Route,
}

enum Route {
    /// Opens a connection per request: heddled may be restarted between two.
    Daemon(PathBuf),
    Direct(Box<Engine>),
}

impl Steering {
    /// Connects to heddled if it runs; otherwise, for root, starts an engine in this process. `direct` skips
    /// heddled.
    ///
    /// # Errors
    /// If neither is possible; the text says what to do.
    pub fn open(direct: bool) -> Result<Self, Error> {
        if direct {
            return Self::direct();
        }
        let path = socket();
        match Connection::open(&path) {
            Ok(_) => Ok(Self::at(path)),
            Err(error) if named_socket().is_none() && is_root() && is_not_listening(&error) => {
                Self::direct()
            }
            Err(error) => Err(unreachable(&path, &error)),
        }
    }

    /// Uses the heddled that listens at `path`.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { way: Route::Daemon(path.into()) }
    }

    /// Uses `engine`, in this process.
    #[must_use]
    pub fn with(engine: Engine) -> Self {
        Self { way: Route::Direct(Box::new(engine)) }
    }

    fn direct() -> Result<Self, Error> {
        if !is_root() {
            return Err(Error::new(ErrorKind::Denied, "steering without heddled takes root"));
        }
        Engine::direct().map(Self::with)
    }

    /// Serves `request`.
    ///
    /// # Errors
    /// What was refused, and what to do.
    pub fn serve(&self, request: Request, fds: Vec<OwnedFd>) -> Served {
        match &self.way {
            Route::Direct(engine) => {
                let uid = rustix::process::geteuid().as_raw();
                engine.serve(Caller { uid }, request, fds)
            }
            Route::Daemon(path) => {
                let connection =
                    Connection::open(path).map_err(|error| unreachable(path, &error))?;
                connection.call(request, &fds)
            }
        }
    }

    /// Deploys a policy.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub fn attach(&self, deployment: Deployment) -> Result<Attachment, Error> {
        let (request, fds) = deployment.request();
        match self.serve(request, fds)?.0 {
            Answer::Attached(attachment) => Ok(attachment),
            other => Err(unexpected(&other)),
        }
    }

    /// Replaces the policy of an attachment.
    ///
    /// # Errors
    /// As [`Self::serve`]; the old policy then stays in force.
    pub fn replace(&self, id: u32, policy: Policy) -> Result<(), Error> {
        self.done(Request::Replace { id, policy }, Vec::new())
    }

    /// Ends an attachment; `sockets` as in [`Request::Detach`].
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub fn detach(&self, id: u32, sockets: Vec<OwnedFd>) -> Result<(), Error> {
        self.done(Request::Detach { id }, sockets)
    }

    /// Makes `fd` an executor of an attachment and returns its index.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub fn add_executor(
        &self,
        id: u32,
        index: Option<u32>,
        label: String,
        fd: OwnedFd,
    ) -> Result<u32, Error> {
        match self.serve(Request::AddExecutor { id, index, label }, vec![fd])?.0 {
            Answer::Executor(index) => Ok(index),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the attachments that the caller may see.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub fn list(&self) -> Result<Vec<Attachment>, Error> {
        let mut list: Vec<Attachment> = Vec::new();
        loop {
            let after = list.last().map_or(0, |last| last.id);
            match self.serve(Request::List { after }, Vec::new())?.0 {
                Answer::List(page) if page.is_empty() => return Ok(list),
                Answer::List(page) => list.extend(page),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Returns the caller's attachments that ended by themselves, oldest first.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub fn ended(&self) -> Result<Vec<Ended>, Error> {
        match self.serve(Request::Ended, Vec::new())?.0 {
            Answer::Ended(ended) => Ok(ended),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns statistics of an attachment; `sample_ms` as in [`Request::Stats`].
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub fn stats(&self, id: u32, sample_ms: u32) -> Result<Stats, Error> {
        match self.serve(Request::Stats { id, sample_ms }, Vec::new())?.0 {
            Answer::Stats(stats) => Ok(stats),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the maps of an attachment, each with a descriptor.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub fn maps(&self, id: u32) -> Result<Vec<(MapInfo, OwnedFd)>, Error> {
        match self.serve(Request::Maps { id }, Vec::new())? {
            (Answer::Maps(infos), fds) if infos.len() == fds.len() => {
                Ok(infos.into_iter().zip(fds).collect())
            }
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Returns one map of an attachment.
    ///
    /// # Errors
    /// `NotFound`, listing the existing names; or as [`Self::serve`].
    pub fn map(&self, id: u32, name: &str) -> Result<(MapInfo, OwnedFd), Error> {
        let maps = self.maps(id)?;
        let names: Vec<String> = maps.iter().map(|(info, _)| info.name.clone()).collect();
        maps.into_iter().find(|(info, _)| info.name == name).ok_or_else(|| {
            let text = format!("attachment {id} has no map `{name}`; it has: {}", names.join(", "));
            Error::new(ErrorKind::NotFound, text)
        })
    }

    /// Returns a handle to the line of executor `index` of an attachment, for reporting what the executor
    /// does.
    ///
    /// # Errors
    /// `Invalid` if there is no such executor; or as [`Self::map`].
    pub fn executor(&self, id: u32, index: u32) -> Result<Executor, Error> {
        let (_, fd) = self.map(id, LINES)?;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidInput => Error::new(ErrorKind::Invalid, error.to_string()),
            _ => Error::system("the executors' lines", &error),
        };
        let lines = Map::from_fd(fd).and_then(|map| Lines::new(&map)).map_err(failed)?;
        lines.executor(index).map_err(failed)
    }

    fn done(&self, request: Request, fds: Vec<OwnedFd>) -> Result<(), Error> {
        match self.serve(request, fds)?.0 {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn is_not_listening(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn unreachable(path: &Path, error: &io::Error) -> Error {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::new(
            ErrorKind::Denied,
            format!(
                "your user may not connect to {path}: join the group that owns the socket (`ls -l \
                 {path}`), or run this as root"
            ),
        ),
        _ if is_not_listening(error) => Error::new(
            ErrorKind::NotFound,
            format!(
                "no daemon listens at {path}: start heddled (systemctl start heddled), or run this as root"
            ),
        ),
        _ => Error::system(format!("cannot connect to {path}"), error),
    }
}

fn unexpected(answer: &Answer) -> Error {
    let text = format!("an answer that does not fit the question: {answer:?}");
    Error::new(ErrorKind::System, text)
}
