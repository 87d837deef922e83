//! The kernel side: loading, attaching, calling.

use super::error::{Missing, RtError};
use crate::identity::Identity;
use crate::model::Kind;
use heddle_bpf::{LoadError, Object, OpenObject, Program};
use std::io;
use std::path::Path;

/// The pin of the program that user space calls.
const CALL: &str = "rt_call";
/// The tracing programs; their links are pinned by these names.
pub(super) const WATCHERS: [&str; 6] =
    ["rt_switch", "rt_wakeup", "rt_wakeup_new", "rt_fork", "rt_exec", "rt_exit"];

const ADMIT: u64 = 0;
const REPORT: u64 = 1;
const LEAVE: u64 = 2;
const RENUMBER: u64 = 3;
/// Any commitment.
const ANY: u32 = u32::MAX;

/// The kernel side of an enclave.
pub(super) struct Tracer {
    call: Program,
}

/// A change of a thread's state by user space, and its message.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateChange {
    pub slot: usize,
    pub tid: u32,
    pub kind: Kind,
    /// The states from which the change is possible, as a bit mask.
    pub from: u32,
    pub to: u32,
    /// Only if the thread is committed to this CPU.
    pub committed: Option<u32>,
    pub info: u64,
}

impl Tracer {
    /// Loads the object into the kernel without attaching anything.
    pub(super) fn load() -> Result<Object, RtError> {
        OpenObject::read("heddle_rt", crate::objects::RT)
            .and_then(OpenObject::load)
            .map_err(|error| missing(&error).map_or_else(|| RtError::Load(error), RtError::Missing))
    }

    pub(super) fn of(object: &Object) -> io::Result<Tracer> {
        object.program(CALL).map(|call| Tracer { call })
    }

    pub(super) fn open(folder: &Path) -> io::Result<Tracer> {
        Program::open(&folder.join(CALL)).map(|call| Tracer { call })
    }

    /// Attaches the tracing programs, and pins them and the called program in `folder`.
    pub(super) fn attach(&self, object: &Object, folder: &Path) -> Result<(), RtError> {
        let pinned =
            |name: &str| RtError::system(format!("pinning {}", folder.join(name).display()));
        self.call.pin(&folder.join(CALL)).map_err(pinned(CALL))?;
        for name in WATCHERS {
            object.attach(name)?.pin(&folder.join(name)).map_err(pinned(name))?;
        }
        Ok(())
    }

    /// Returns the names of all pins of [`Tracer::attach`].
    pub(super) fn pins() -> impl Iterator<Item = &'static str> {
        WATCHERS.into_iter().chain([CALL])
    }

    fn ask(&self, mut call: [u64; 8]) -> io::Result<[u64; 8]> {
        self.call.run(&mut call)?;
        Ok(call)
    }

    /// Takes a slot for a thread, which sends no message yet; `None` if all are in use.
    pub(super) fn admit(
        &self,
        tid: u32,
        tgid: u32,
        old: (u32, u32),
        nice: i32,
    ) -> io::Result<Option<usize>> {
        let call =
            [ADMIT, pair(tid, tgid), 0, 0, 0, pair(old.0, old.1), pair(nice.cast_unsigned(), 0), 0];
        let answer = self.ask(call)?;
        let worked = answer[6] >> 32 != 0;
        Ok(worked.then_some((answer[0] >> 32) as usize))
    }

    /// Changes a thread's state and sends its message. Returns whether the thread was in one of the required
    /// states.
    pub(super) fn report(&self, change: StateChange) -> bool {
        let committed = change.committed.map_or(ANY, |cpu| cpu + 1);
        let call = [
            REPORT | (change.slot as u64) << 32,
            pair(change.tid, 0),
            pair(change.kind as u32, change.from),
            pair(change.to, committed),
            change.info,
            0,
            0,
            0,
        ];
        // Fails only if the program is not the one that was loaded.
        self.ask(call).is_ok_and(|answer| answer[6] >> 32 != 0)
    }

    /// Ends the management of the thread.
    pub(super) fn leave(&self, slot: usize, tid: u32) -> bool {
        let kind = pair(Kind::ThreadDeparted as u32, 0);
        let call = [LEAVE | (slot as u64) << 32, pair(tid, 0), kind, 0, 0, 0, 0, 0];
        self.ask(call).is_ok_and(|answer| answer[6] >> 32 != 0)
    }

    /// Records that the thread has its process's number now. Returns false if the kernel side knows that, or the
    /// thread is no longer managed.
    pub(super) fn renumber(&self, slot: usize, tid: u32, now: Identity) -> bool {
        let call = [RENUMBER | (slot as u64) << 32, pair(tid, now.tgid), 0, 0, now.began, 0, 0, 0];
        self.ask(call).is_ok_and(|answer| answer[6] >> 32 != 0)
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Returns what the process or the kernel lacks, by the kernel's refusal.
fn missing(error: &LoadError) -> Option<Missing> {
    match error.error.raw_os_error() {
        Some(1 | 13) if !error.log.contains("processed ") => {
            Some(Missing::Bpf(error.error.to_string()))
        }
        Some(2 | 3 | 22) => Some(Missing::Kernel(error.to_string())),
        _ => None,
    }
}
