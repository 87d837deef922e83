//! Deploying policies: the one place that serves [`Request`]s, whether they come from this process or,
//! through the daemon, from another.
//!
//! - **I1** An attachment is complete before any input reaches it, and a failed one is undone.
//! - **I2** Everything attached is recorded, and recorded attachments that are dead are removed
//!   ([`Engine::collect`]).
//! - **I3** An engine keeps nothing in memory that it could not recover.
//! - **I4** Only root gets the maps that Heddle makes for itself, except the executors' lines: some hold
//!   addresses that the kernel reads from.
//! - **I5** Nothing that a caller can slow down happens while others wait: a user's object is read, and
//!   sockets that are not free yet are waited for, before the lock is taken. Calls that take the lock of a
//!   user's socket run in a separate process ([`heddle_sys::isolated`]). Users take turns; lists and counts
//!   never wait.
//! - **I6** Each request may be served by a thread with its own descriptors: the engine keeps none that such
//!   a thread opened (`keeper`).
//! - **I7** An attachment is dead only if the kernel says so ([`Engine::collect`]).

mod attach_point;
mod claims;
mod ended;
mod folders;
mod foreign_sockets;
mod group;
mod keeper;
mod meter;
mod owner;
mod packets;
mod quota;
mod records;
mod remaining_maps;
mod shared;
mod state;
mod stats;
mod turns;
mod upkeep;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use heddle_bpf::{MapKind, possible_cpus};
use heddle_core::Layer;
use heddle_sys::usdt;

use ended::EndedFile;
use group::MAX_EXECUTORS;
use meter::Accounting;
pub use meter::{Costs, Meter};
use quota::Demand;
pub use quota::Quota;
use remaining_maps::RemainingMaps;
pub use state::{State, Stored};
pub use stats::Cost;
use turns::{Turn, Turns};
pub use upkeep::{Dead, Upkeep};

use crate::executor::LINES;
use crate::hook::Hook;
use crate::policy::{self, Object};
use crate::request::{
    Answer, Attachment, Error, ErrorKind, MapInfo, Policy, ROLES, Request, Role, Status,
};

/// Characters kept of a text from a caller.
const MAX_TEXT: usize = 256;
/// Characters kept of an error, which may repeat the caller's text.
const MAX_ERROR: usize = 16 << 10;
/// Bytes of attachments in one answer, of which one alone may have more; a record is at most half a message.
const PAGE: usize = 1 << 20;

/// The user who makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The uid. Root (0) may do everything with every attachment; others only with their own.
    pub uid: u32,
}

/// Parses a user's compiled policy; the daemon does so in a separate process.
pub type Reader = Box<dyn Fn(&[u8]) -> Result<Object, Error> + Send + Sync>;

/// Deploys policies on this machine.
pub struct Engine {
    state: State,
    reader: Reader,
    quota: Quota,
    turns: Turns,
    left: RemainingMaps,
    /// Evictions that could not be recorded yet, with the reasons.
    evicted: Mutex<BTreeMap<u32, String>>,
    ended: EndedFile,
    /// Attachments that ended since the last [`Engine::collect`].
    dead: Mutex<Vec<Dead>>,
    accounting: Accounting,
}

/// The right to change the state, within this process and among processes.
struct Locked<'a> {
    _turn: Turn<'a>,
    _file: File,
}

/// What a request brings, and the descriptors that go with it.
pub type Served = Result<(Answer, Vec<OwnedFd>), Error>;

/// A descriptor with its role.
type TypedDescriptors = Vec<(Role, OwnedFd)>;

impl Engine {
    /// Creates an engine over `state`, which parses compiled policies with `reader`.
    ///
    /// # Errors
    /// If the state's folders cannot be made, the kernel does not report the number of CPUs, or no thread can
    /// be started.
    pub fn new(state: State, reader: Reader) -> Result<Self, Error> {
        state.prepare()?;
        // The size of maps depends on it, and once read it needs no descriptor.
        possible_cpus().map_err(|error| Error::system("cannot count the CPUs", &error))?;
        let left = RemainingMaps::at(state.run().join("maps-left"));
        let (turns, evicted, dead) = (Turns::default(), Mutex::default(), Mutex::default());
        let ended = EndedFile::at(state.run().join("ended"));
        let accounting = Accounting::new();
        let accounting = accounting.map_err(|error| Error::system("no thread", &error))?;
        Ok(Self {
            state,
            reader,
            quota: Quota::NONE,
            turns,
            left,
            evicted,
            ended,
            dead,
            accounting,
        })
    }

    /// Limits every user but root to `quota`.
    #[must_use]
    pub fn with_quota(self, quota: Quota) -> Self {
        Self { quota, ..self }
    }

    /// Returns this machine's engine, in this process: for root, without the daemon.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn direct() -> Result<Self, Error> {
        Self::new(State::system(), Box::new(read_here))
    }

    /// Returns the state that outlives it.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns how many descriptors `caller` may send with a request: enough for as many executors as the quota
    /// allows at all, and for what comes with them.
    #[must_use]
    pub fn max_descriptors(&self, caller: Caller) -> usize {
        let others = ROLES - MAX_EXECUTORS as usize;
        let executors = if caller.uid == 0 { usize::MAX } else { self.quota.executors };
        executors.saturating_add(others).min(ROLES)
    }

    /// Serves `request` for `caller`.
    ///
    /// # Errors
    /// What was wrong, and what to do. Nothing has changed then, unless the text says so.
    pub fn serve(&self, caller: Caller, request: Request, fds: Vec<OwnedFd>) -> Served {
        self.answer(caller, request, fds).map_err(|mut error| {
            if error.text.len() > MAX_ERROR {
                error.text = error.text.chars().take(MAX_ERROR / 4).collect();
            }
            error
        })
    }

    fn answer(&self, caller: Caller, request: Request, fds: Vec<OwnedFd>) -> Served {
        let done = |()| (Answer::Done, Vec::new());
        match request {
            Request::Attach { .. } => self.attach(caller, request, fds),
            Request::AddExecutor { id, index, label } => {
                self.add_executor(caller, id, index, &label, fds)
            }
            Request::Replace { id, policy } => self.replace(caller, id, policy).map(done),
            Request::Detach { id } => {
                let _user = self.turns.user(caller.uid);
                let _lock = self.locked(caller)?;
                let stored = self.open(caller, id)?;
                self.end(&stored, &fds).map(done)
            }
            Request::List { after } => self.list(caller, after),
            Request::Ended => {
                self.ended.list(caller).map(|ended| (Answer::Ended(ended), Vec::new()))
            }
            // Nothing changes.
            Request::Maps { id } => maps(caller, &self.open(caller, id)?),
            Request::Stats { id, sample_ms } => stats::of(&self.open(caller, id)?, sample_ms)
                .map(|stats| (Answer::Stats(stats), Vec::new())),
        }
    }

    /// Takes the right to change the state, after removing dead attachments: the caller's, or all if it is
    /// root.
    fn locked(&self, caller: Caller) -> Result<Locked<'_>, Error> {
        let turn = self.turns.change(false);
        let locked = Locked { _file: self.state.lock()?, _turn: turn };
        self.remove_dead((caller.uid != 0).then_some(caller.uid))?;
        Ok(locked)
    }

    /// Returns a page of the caller's attachments. Before the first, dead ones are removed unless a change is
    /// under way.
    fn list(&self, caller: Caller, after: u32) -> Served {
        if after == 0
            && let Some(_turn) = self.turns.try_change()
            && let Some(_lock) = self.state.try_lock()?
        {
            self.remove_dead((caller.uid != 0).then_some(caller.uid))?;
        }
        let mut list = self.state.list()?;
        list.retain(|attachment| attachment.id > after && may(caller, attachment));
        let evicted = self.evicted();
        for attachment in &mut list {
            // Used for quotas only, as in a new attachment.
            attachment.maps.clear();
            if let Some(why) = evicted.get(&attachment.id) {
                attachment.status = Status::Evicted(why.clone());
            }
        }
        let mut bytes = 0;
        let fits = |attachment: &Attachment| {
            let before = bytes;
            bytes += serde_json::to_vec(attachment).map_or(PAGE, |text| text.len());
            before == 0 || bytes <= PAGE
        };
        let page = list.into_iter().take_while(fits).collect();
        Ok((Answer::List(page), Vec::new()))
    }

    fn attach(&self, caller: Caller, request: Request, fds: Vec<OwnedFd>) -> Served {
        let Request::Attach { policy, hook, below, pid, command, roles } = request else {
            return Err(invalid("not to attach"));
        };
        // Declared first, so dropped last: closing a user's descriptor may take as long as the user likes (a
        // FUSE file, say), and must delay no other.
        let mut given = pair(roles, fds)?;
        let _user = self.turns.user(caller.uid);
        self.accounting.admit(caller)?;
        let (object, parameters) = self.object(&policy)?;
        let shared = shared::take(&mut given, &object)?;
        let owner = owner::take(&mut given)?;
        let sockets = given.iter().filter(|(role, _)| role.is_executor()).count();
        let executors = sockets + below.as_ref().map_or(0, |below| below.cpus.len());
        if hook == Hook::SocketSelect {
            let sockets: Vec<_> = given.iter().map(|(_, socket)| socket.as_fd()).collect();
            group::wait_for(&self.state, caller.uid, &sockets)?;
        }
        let _lock = self.locked(caller)?;
        let wanted = Demand {
            attachment: true,
            executors,
            policy: Some(&object),
            shared: Some(&shared),
            replaces: None,
        };
        self.quota.check(&self.state, &self.left, caller, wanted)?;
        if caller.uid != 0 {
            self.accounting.count()?;
        }
        let attachment = Attachment {
            id: self.state.free_id()?,
            hook,
            policy: clean(&policy.name),
            parameters,
            uid: caller.uid,
            pid,
            command: clean(&command),
            protocol: String::new(),
            address: String::new(),
            interface: below.as_ref().map(|below| clean(&below.interface)),
            executors: Vec::new(),
            sockets: Vec::new(),
            namespace: 0,
            since_ms: now_ms(),
            status: Status::Active,
            owner,
            slot: None,
            map_bytes: 0,
            maps: Vec::new(),
        };
        let stored = attach_point::attach(
            &self.state,
            &self.quota,
            attachment,
            &object,
            &given,
            shared,
            below,
        )?;
        // Otherwise only its note is missing, which must not prevent the attachment.
        let _ = self.ended.succeeded_by(&stored.attachment);
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
        let _user = self.turns.user(caller.uid);
        let [fd] = <[OwnedFd; 1]>::try_from(fds)
            .map_err(|_| invalid("one executor takes one descriptor"))?;
        self.open(caller, id)?;
        group::wait_for(&self.state, caller.uid, &[fd.as_fd()])?;
        let _lock = self.locked(caller)?;
        let mut stored = self.open(caller, id)?;
        let wanted = Demand { executors: 1, ..Demand::default() };
        self.quota.check(&self.state, &self.left, caller, wanted)?;
        let index = attach_point::add(&self.state, &mut stored, index, clean(label), &fd)?;
        self.state.write(&stored.attachment)?;
        Ok((Answer::Executor(index), Vec::new()))
    }

    fn replace(&self, caller: Caller, id: u32, policy: Policy) -> Result<(), Error> {
        let _user = self.turns.user(caller.uid);
        self.accounting.admit(caller)?;
        let (object, parameters) = self.object(&policy)?;
        let policy = Policy { name: clean(&policy.name), parameters, object: None };
        let _lock = self.locked(caller)?;
        let stored = self.open(caller, id)?;
        let wanted = Demand { policy: Some(&object), replaces: Some(id), ..Demand::default() };
        self.quota.check(&self.state, &self.left, caller, wanted)?;
        // Maps that the new policy reuses are counted once.
        self.left.add(stored.attachment.uid, &stored.maps)?;
        let name = policy.name.clone();
        attach_point::replace(&self.state, stored, policy, &object)?;
        usdt::policy_replaced(Layer::Steer, id, &name);
        self.evicted().remove(&id);
        Ok(())
    }

    fn evicted(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, String>> {
        self.evicted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dead(&self) -> std::sync::MutexGuard<'_, Vec<Dead>> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evicts an attachment's policy and notes the reason; the kernel decides from now on. Goes ahead of all
    /// who wait to change something.
    ///
    /// # Errors
    /// If there is no such attachment, or the kernel refuses. If the record cannot be written (a full disk,
    /// say), the policy is gone nevertheless, [`Request::List`] says so, and [`Self::write_evicted`] tries
    /// again.
    pub fn evict(&self, id: u32, why: &str) -> Result<(), Error> {
        let _turn = self.turns.change(true);
        let _lock = self.state.lock()?;
        let stored = self.state.open(id)?;
        attach_point::evict(&self.state, &stored)?;
        self.evicted().insert(id, why.into());
        self.write_evictions()
    }

    /// Records the evictions that could not be recorded before.
    ///
    /// # Errors
    /// If they still cannot.
    pub fn write_evicted(&self) -> Result<(), Error> {
        if self.evicted().is_empty() {
            return Ok(());
        }
        let _turn = self.turns.change(true);
        let _lock = self.state.lock()?;
        self.write_evictions()
    }

    /// Call with the lock.
    fn write_evictions(&self) -> Result<(), Error> {
        let waiting: Vec<(u32, String)> = self.evicted().clone().into_iter().collect();
        let mut result = Ok(());
        for (id, why) in waiting {
            let written = match self.state.find(id) {
                Ok(mut attachment) => {
                    attachment.status = Status::Evicted(why);
                    self.state.write(&attachment)
                }
                Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            };
            if written.is_ok() {
                self.evicted().remove(&id);
            }
            // One failure must not keep the others from being recorded.
            result = result.and(written);
        }
        result
    }

    fn open(&self, caller: Caller, id: u32) -> Result<Stored, Error> {
        let stored = self.state.open(id)?;
        if may(caller, &stored.attachment) {
            return Ok(stored);
        }
        let uid = stored.attachment.uid;
        Err(Error::new(ErrorKind::Denied, format!("attachment {id} belongs to user {uid}")))
    }

    /// Returns the policy with its parameters set, and the parameters as understood.
    fn object(&self, policy: &Policy) -> Result<(Object, Vec<(String, String)>), Error> {
        object_of(policy, &self.reader)
    }
}

/// Returns a policy with its parameters set, and the parameters as understood. `reader` parses those that are not
/// shipped.
pub(crate) fn object_of(
    policy: &Policy,
    reader: impl Fn(&[u8]) -> Result<Object, Error>,
) -> Result<(Object, Vec<(String, String)>), Error> {
    let name = clean(&policy.name);
    let mut object = match &policy.object {
        Some(bytes) => reader(bytes)?,
        None => {
            let bytes = policy::shipped(&policy.name).ok_or_else(|| unknown_policy(&name))?;
            read_here(bytes)?
        }
    };
    policy::check(&object).map_err(|refused| {
        Error::new(ErrorKind::Denied, format!("policy `{name}` is {refused}"))
    })?;
    let parameters = policy::set_params(&mut object, &policy.parameters)
        .map_err(|error| invalid(format!("policy `{name}`: {error}")))?;
    Ok((object, parameters))
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

/// Parses a compiled policy in this process.
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

fn pair(roles: Vec<Role>, fds: Vec<OwnedFd>) -> Result<TypedDescriptors, Error> {
    if roles.len() != fds.len() {
        return Err(invalid(format!("{} descriptors came for {} roles", fds.len(), roles.len())));
    }
    Ok(roles.into_iter().zip(fds).collect())
}

/// Returns the maps that a caller may have (I4).
fn maps(caller: Caller, stored: &Stored) -> Served {
    let may = |name: &str| caller.uid == 0 || !name.starts_with("hd_") || name == LINES;
    let of = || stored.maps.iter().filter(|(name, _)| may(name));
    let infos = of().map(|(name, map)| map_info(name, map.spec())).collect();
    let fds = of().map(|(_, map)| map.try_clone().map(OwnedFd::from)).collect::<Result<_, _>>();
    let fds = fds.map_err(|error| Error::system("cannot copy a descriptor", &error))?;
    Ok((Answer::Maps(infos), fds))
}

fn map_info(name: &str, spec: &heddle_bpf::MapSpec) -> MapInfo {
    let mappable = spec.kind == MapKind::Array;
    let (key_size, value_size, entries) = (spec.key_size, spec.value_size, spec.entries);
    MapInfo { name: name.into(), key_size, value_size, entries, mappable }
}

/// Cleans a text from a caller, which others will read on their terminals.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(MAX_TEXT).collect()
}

fn now_ms() -> u64 {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
