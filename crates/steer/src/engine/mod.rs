//! Deploying policies: the one place that serves [`Request`]s, whether they come from this process or, through the
//! daemon, from another.
//!
//! - **I1** What an attachment is made of is complete before any input meets it, and what failed half-way is undone.
//! - **I2** Everything that is attached is recorded, and what is recorded and dead is removed ([`Engine::collect`]).
//! - **I3** An engine keeps nothing in memory that it could not find again.
//! - **I4** Only root gets the maps that Heddle makes for itself, but for the executors' lines: what is written into some
//!   of them is where the kernel reads from.
//! - **I5** Nothing that a caller can make slow happens while others wait: a stranger's object is read before the lock.

mod group;
mod owner;
mod packets;
mod place;
mod quota;
mod shared;
mod state;
mod stats;

use std::os::fd::OwnedFd;
use std::time::Duration;

use heddle_sys::bpf::MapKind;

pub use quota::Quota;
use quota::Wanted;
pub use state::{State, Stored};
pub use stats::Cost;

use crate::executor::LINES;
use crate::policy::{self, Object};
use crate::request::{
    Answer, Attachment, Error, ErrorKind, MapInfo, Policy, Request, Role, Status,
};

/// Characters that are kept of a text that a caller gives.
const MAX_TEXT: usize = 256;

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
    quota: Quota,
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
        Ok(Self { state, reader, quota: Quota::NONE })
    }

    /// The same engine, which gives no user but root more than `quota`.
    #[must_use]
    pub fn with_quota(self, quota: Quota) -> Self {
        Self { quota, ..self }
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
        let done = |()| (Answer::Done, Vec::new());
        match request {
            Request::Attach { .. } => self.attach(caller, request, fds),
            Request::AddExecutor { id, index, label } => {
                self.add_executor(caller, id, index, &label, fds)
            }
            Request::Replace { id, policy } => self.replace(caller, id, policy).map(done),
            Request::Detach { id } => {
                let _lock = self.locked()?;
                let stored = self.open(caller, id)?;
                place::detach(&self.state, &stored, &fds)?;
                self.state.remove(id).map(done)
            }
            Request::List => {
                let _lock = self.locked()?;
                let mut list = self.state.list()?;
                list.retain(|attachment| may(caller, attachment));
                Ok((Answer::List(list), Vec::new()))
            }
            Request::Maps { id } => {
                let _lock = self.locked()?;
                maps(caller, &self.open(caller, id)?)
            }
            // Nothing changes, and it may take a while.
            Request::Stats { id, sample_ms } => stats::of(&self.open(caller, id)?, sample_ms)
                .map(|stats| (Answer::Stats(stats), Vec::new())),
        }
    }

    /// Keeps others from changing the state, after what is dead was removed.
    fn locked(&self) -> Result<std::fs::File, Error> {
        let lock = self.state.lock()?;
        self.remove_dead()?;
        Ok(lock)
    }

    fn attach(&self, caller: Caller, request: Request, fds: Vec<OwnedFd>) -> Served {
        let Request::Attach { policy, hook, below, pid, command, roles } = request else {
            return Err(invalid("not to attach"));
        };
        let mut given = pair(roles, fds)?;
        let object = self.object(&policy)?;
        let shared = shared::take(&mut given, &object)?;
        let owner = owner::take(&mut given)?;
        let executors = given.iter().filter(|(role, _)| role.is_executor()).count();
        let _lock = self.locked()?;
        let wanted = Wanted {
            attachment: true,
            executors,
            policy: Some(&object),
            shared: Some(&shared),
            replaces: None,
        };
        self.quota.check(&self.state, caller, wanted)?;
        let attachment = Attachment {
            id: self.state.free_id()?,
            hook,
            policy: clean(&policy.name),
            parameters: policy.parameters,
            uid: caller.uid,
            pid,
            command: clean(&command),
            protocol: String::new(),
            address: String::new(),
            interface: below.as_ref().map(|below| clean(&below.interface)),
            executors: Vec::new(),
            since_ms: now_ms(),
            status: Status::Active,
            owner,
            slot: None,
        };
        let stored = place::attach(&self.state, attachment, &object, given, shared, below)?;
        Ok((Answer::Attached(stored.attachment), Vec::new()))
    }

    fn add_executor(
        &self,
        caller: Caller,
        id: u32,
        index: Option<u32>,
        label: &str,
        fds: Vec<OwnedFd>,
    ) -> Served {
        let [fd] = <[OwnedFd; 1]>::try_from(fds)
            .map_err(|_| invalid("one executor takes one descriptor"))?;
        let _lock = self.locked()?;
        let mut stored = self.open(caller, id)?;
        let wanted = Wanted { executors: 1, ..Wanted::default() };
        self.quota.check(&self.state, caller, wanted)?;
        let index = place::add(&mut stored, index, clean(label), &fd)?;
        self.state.write(&stored.attachment)?;
        Ok((Answer::Executor(index), Vec::new()))
    }

    fn replace(&self, caller: Caller, id: u32, mut policy: Policy) -> Result<(), Error> {
        let object = self.object(&policy)?;
        policy.name = clean(&policy.name);
        let _lock = self.locked()?;
        let stored = self.open(caller, id)?;
        let wanted = Wanted { policy: Some(&object), replaces: Some(id), ..Wanted::default() };
        self.quota.check(&self.state, caller, wanted)?;
        place::replace(&self.state, stored, policy, &object)
    }

    /// Removes the attachments whose executors are all gone, or whose owner is; which ones.
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
            let stored = match self.state.open(attachment.id) {
                Ok(stored) => Some(stored),
                // It has lost its pins: nothing of it decides any more.
                Err(error) if error.kind == ErrorKind::NotFound => None,
                // Too many open files, say: that tells nothing about the attachment.
                Err(_) => continue,
            };
            let owned = attachment.owner.is_none_or(owner::alive);
            if !(owned && stored.as_ref().is_some_and(|stored| place::alive(&self.state, stored))) {
                if let Some(stored) = stored {
                    place::detach(&self.state, &stored, &[])?;
                }
                self.state.remove(attachment.id)?;
                dead.push(attachment);
            }
        }
        packets::sweep(&self.state)?;
        Ok(dead)
    }

    /// What each policy that decides costs, counted during `sample`. Nothing is counted where none does.
    ///
    /// # Errors
    /// If the kernel does not count.
    pub fn costs(&self, sample: Duration) -> Result<Vec<(Attachment, Cost)>, Error> {
        let mut list = self.state.list()?;
        list.retain(|attachment| attachment.status == Status::Active);
        let stored: Vec<Stored> =
            list.iter().filter_map(|attachment| self.state.open(attachment.id).ok()).collect();
        if stored.is_empty() {
            return Ok(Vec::new());
        }
        let costs = stats::costs(&stored.iter().collect::<Vec<_>>(), sample)?;
        Ok(stored.into_iter().map(|stored| stored.attachment).zip(costs).collect())
    }

    /// Takes an attachment's policy away, for a reason; the kernel decides from now on.
    ///
    /// # Errors
    /// If there is no such attachment, or the kernel refuses.
    pub fn evict(&self, id: u32, why: &str) -> Result<(), Error> {
        let _lock = self.state.lock()?;
        let mut stored = self.state.open(id)?;
        place::evict(&self.state, &stored)?;
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

/// The maps that a caller may have (I4).
fn maps(caller: Caller, stored: &Stored) -> Served {
    let may = |name: &str| caller.uid == 0 || !name.starts_with("hd_") || name == LINES;
    let of = || stored.maps.iter().filter(|(name, _)| may(name));
    let infos = of().map(|(name, map)| map_info(name, map.spec())).collect();
    let fds = of().map(|(_, map)| map.try_clone().map(OwnedFd::from)).collect::<Result<_, _>>();
    let fds = fds.map_err(|error| Error::system("cannot copy a descriptor", &error))?;
    Ok((Answer::Maps(infos), fds))
}

fn map_info(name: &str, spec: &heddle_sys::bpf::MapSpec) -> MapInfo {
    let mappable = spec.kind == MapKind::Array;
    let (key_size, value_size, entries) = (spec.key_size, spec.value_size, spec.entries);
    MapInfo { name: name.into(), key_size, value_size, entries, mappable }
}

/// A text of a caller's, which others will read on their terminals.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(MAX_TEXT).collect()
}

fn now_ms() -> u64 {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
