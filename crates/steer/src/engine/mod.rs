//! Deploying policies: the one place that serves [`Request`]s, whether they come from this process or, through the
//! daemon, from another.
//!
//! - **I1** What an attachment is made of is complete before any input meets it, and what failed half-way is undone.
//! - **I2** Everything that is attached is recorded, and what is recorded and dead is removed ([`Engine::collect`]).
//! - **I3** An engine keeps nothing in memory that it could not find again.

mod group;
mod state;
mod stats;

use std::os::fd::OwnedFd;

pub use state::{State, Stored};

use crate::policy::{self, Object};
use crate::request::{
    Answer, Attachment, Error, ErrorKind, MapInfo, Policy, Request, Role, Status,
};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user. 0 may do everything with every attachment; others with their own.
    pub uid: u32,
}

/// Takes apart a compiled policy of a stranger; in the daemon, in a process of its own.
pub type Reader = Box<dyn Fn(&[u8]) -> Result<Object, Error> + Send + Sync>;

/// Deploys policies on this machine.
pub struct Engine {
    state: State,
    reader: Reader,
}

/// What a request brings, and the descriptors that go with it.
pub type Served = Result<(Answer, Vec<OwnedFd>), Error>;

/// A descriptor with what it is.
type Given = Vec<(Role, OwnedFd)>;

impl Engine {
    /// An engine over `state`, which takes compiled policies apart with `reader`.
    ///
    /// # Errors
    /// If the state's folders cannot be made.
    pub fn new(state: State, reader: Reader) -> Result<Self, Error> {
        state.prepare()?;
        Ok(Self { state, reader })
    }

    /// The engine of this machine, in this process: for root, without the daemon.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn direct() -> Result<Self, Error> {
        Self::new(State::system(), Box::new(read_here))
    }

    /// Where it keeps what outlives it.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Does what `request` says, for `caller`.
    ///
    /// # Errors
    /// What was wrong, and what to do. Nothing changed then, unless the text says so.
    pub fn serve(&self, caller: Caller, request: Request, fds: Vec<OwnedFd>) -> Served {
        if let Request::Stats { id, sample_ms } = request {
            // Nothing changes, and it may take a while.
            let stored = self.open(caller, id)?;
            return stats::of(&stored, sample_ms).map(|stats| (Answer::Stats(stats), Vec::new()));
        }
        let _lock = self.state.lock()?;
        self.remove_dead()?;
        let done = |()| (Answer::Done, Vec::new());
        match request {
            Request::Attach { policy, hook, below, pid, command, roles } => {
                let given = pair(roles, fds)?;
                let object = self.object(&policy)?;
                let attachment = Attachment {
                    id: self.state.free_id()?,
                    hook,
                    policy: policy.name,
                    parameters: policy.parameters,
                    uid: caller.uid,
                    pid,
                    command,
                    protocol: String::new(),
                    address: String::new(),
                    interface: below.as_ref().map(|below| below.interface.clone()),
                    executors: Vec::new(),
                    since_ms: now_ms(),
                    status: Status::Active,
                };
                let stored = group::attach(&self.state, attachment, &object, given)?;
                let answer = Answer::Attached(stored.attachment);
                Ok((answer, descriptors(&stored.maps)?))
            }
            Request::AddExecutor { id, index, label } => {
                let mut stored = self.open(caller, id)?;
                let [fd] = <[OwnedFd; 1]>::try_from(fds)
                    .map_err(|_| invalid("one executor takes one descriptor"))?;
                let index = group::add(&mut stored, index, label, &fd)?;
                self.state.write(&stored.attachment)?;
                Ok((Answer::Executor(index), Vec::new()))
            }
            Request::Replace { id, policy } => {
                let stored = self.open(caller, id)?;
                let object = self.object(&policy)?;
                group::replace(&self.state, stored, policy, &object).map(done)
            }
            Request::Detach { id } => {
                let stored = self.open(caller, id)?;
                group::detach(&stored, &fds)?;
                self.state.remove(id).map(done)
            }
            Request::List => {
                let mut list = self.state.list()?;
                list.retain(|attachment| may(caller, attachment));
                Ok((Answer::List(list), Vec::new()))
            }
            Request::Maps { id } => {
                let stored = self.open(caller, id)?;
                let infos =
                    stored.maps.iter().map(|(name, map)| map_info(name, map.spec())).collect();
                Ok((Answer::Maps(infos), descriptors(&stored.maps)?))
            }
            Request::Stats { .. } => Err(invalid("served above")),
        }
    }

    /// Removes the attachments whose executors are all gone; which ones.
    ///
    /// # Errors
    /// If the state cannot be read or changed.
    pub fn collect(&self) -> Result<Vec<Attachment>, Error> {
        let _lock = self.state.lock()?;
        self.remove_dead()
    }

    fn remove_dead(&self) -> Result<Vec<Attachment>, Error> {
        let mut dead = Vec::new();
        for attachment in self.state.list()? {
            // What cannot be opened has lost its pins: nothing of it decides any more.
            let alive = self.state.open(attachment.id).is_ok_and(|stored| group::alive(&stored));
            if !alive {
                self.state.remove(attachment.id)?;
                dead.push(attachment);
            }
        }
        Ok(dead)
    }

    /// Takes an attachment's policy away, for a reason; the kernel decides from now on.
    ///
    /// # Errors
    /// If there is no such attachment, or the kernel refuses.
    pub fn evict(&self, id: u32, why: &str) -> Result<(), Error> {
        let _lock = self.state.lock()?;
        let mut stored = self.state.open(id)?;
        group::evict(&stored)?;
        stored.attachment.status = Status::Evicted(why.into());
        self.state.write(&stored.attachment)
    }

    fn open(&self, caller: Caller, id: u32) -> Result<Stored, Error> {
        let stored = self.state.open(id)?;
        if may(caller, &stored.attachment) {
            return Ok(stored);
        }
        let uid = stored.attachment.uid;
        Err(Error::new(ErrorKind::Denied, format!("attachment {id} belongs to user {uid}")))
    }

    fn object(&self, policy: &Policy) -> Result<Object, Error> {
        let mut object = match &policy.object {
            Some(bytes) => (self.reader)(bytes)?,
            None => {
                let bytes =
                    policy::shipped(&policy.name).ok_or_else(|| unknown_policy(&policy.name))?;
                read_here(bytes)?
            }
        };
        policy::check(&object).map_err(|refused| {
            Error::new(ErrorKind::Denied, format!("policy `{}` is {refused}", policy.name))
        })?;
        policy::set_params(&mut object, &policy.parameters)
            .map_err(|error| invalid(format!("policy `{}`: {error}", policy.name)))?;
        Ok(object)
    }
}

fn unknown_policy(name: &str) -> Error {
    let names: Vec<&str> = policy::shipped_names().collect();
    Error::new(
        ErrorKind::NotFound,
        format!(
            "there is no policy `{name}`; shipped are {}; a file is named with its path",
            names.join(", ")
        ),
    )
}

/// Takes apart a compiled policy in this process.
///
/// # Errors
/// What is wrong with it.
pub fn read_here(bytes: &[u8]) -> Result<Object, Error> {
    policy::read(bytes).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))
}

fn may(caller: Caller, attachment: &Attachment) -> bool {
    caller.uid == 0 || caller.uid == attachment.uid
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, text)
}

fn pair(roles: Vec<Role>, fds: Vec<OwnedFd>) -> Result<Given, Error> {
    if roles.len() != fds.len() {
        return Err(invalid(format!("{} descriptors came for {} roles", fds.len(), roles.len())));
    }
    Ok(roles.into_iter().zip(fds).collect())
}

fn descriptors(maps: &policy::Maps) -> Result<Vec<OwnedFd>, Error> {
    let clone = |map: &heddle_sys::bpf::Map| map.try_clone().map(OwnedFd::from);
    maps.values()
        .map(clone)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::system("cannot copy a descriptor", &error))
}

fn map_info(name: &str, spec: &heddle_sys::bpf::MapSpec) -> MapInfo {
    let mappable = spec.kind == heddle_sys::bpf::MapKind::Array;
    let (key_size, value_size, entries) = (spec.key_size, spec.value_size, spec.entries);
    MapInfo { name: name.into(), key_size, value_size, entries, mappable }
}

fn now_ms() -> u64 {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
