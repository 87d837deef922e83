//! A runtime whose workers share their CPUs with those of other programs: they come and go with their CPUs
//! ([`heddle_share`]).
//!
//! A worker is *active* on its CPU while its loop and its tasks run. It leaves the CPU where it parks, and takes it
//! again where it wakes up. Where another program's worker is to have the CPU, its task is preempted as at the end of a
//! quantum, waits in its own queue, and the worker waits in its loop.

use crate::alarm;
use crate::interpose;
use crate::worker::Remote;
use heddle_share::{JoinError, Kind, Member};
use heddle_sys::scheduling::{self, Scheduling};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// How a program takes part in a share.
#[derive(Clone, Debug)]
pub(crate) struct ShareConfig {
    /// The broker's socket.
    pub(crate) socket: PathBuf,
    pub(crate) kind: Kind,
    /// The name that others see.
    pub(crate) name: String,
}

/// Why a runtime cannot share its CPUs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The process could not join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Another runtime of the process shares its CPUs.
    #[error("another runtime of this process does so already, and only one at a time can")]
    InUse,
    /// Tasks cannot be preempted.
    #[error(
        "a program that shares CPUs makes way for others, so its tasks must be preemptible: \
         leave out HEDDLE_MECHANISM=none"
    )]
    NeedsPreemption,
    /// CPUs were named, too.
    #[error(
        "the share names the CPUs: leave out those of the runtime, its number of workers and its dispatcher \
         (HEDDLE_CPUS, HEDDLE_WORKERS, HEDDLE_DISPATCHER)"
    )]
    HasCpus,
}

/// The process's membership: it has one, for as long as it lives.
static MEMBER: AtomicPtr<Member> = AtomicPtr::new(std::ptr::null_mut());

/// A runtime uses it.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// A runtime's use of the membership.
#[derive(Debug)]
pub(crate) struct Share(&'static Member);

impl Share {
    /// Makes the process a member, unless it is one. Its tasks can be preempted, or not.
    pub(crate) fn join(config: &ShareConfig, preempts: bool) -> Result<Share, ShareError> {
        if !preempts {
            return Err(ShareError::NeedsPreemption);
        }
        if IN_USE.swap(true, Ordering::AcqRel) {
            return Err(ShareError::InUse);
        }
        // SAFETY: null or a member, which is never freed.
        if let Some(member) = unsafe { MEMBER.load(Ordering::Acquire).as_ref() } {
            return Ok(Share(member));
        }
        match Member::join(&config.socket, &config.name, config.kind, alarm::SIGNAL) {
            Ok(member) => {
                MEMBER.store(std::ptr::from_ref(member).cast_mut(), Ordering::Release);
                Ok(Share(member))
            }
            Err(error) => {
                IN_USE.store(false, Ordering::Release);
                Err(error.into())
            }
        }
    }

    /// Returns the member. Its CPUs are the runtime's, by the same indices.
    #[inline]
    pub(crate) fn member(&self) -> &'static Member {
        self.0
    }

    /// The thread of `worker` has lost its CPU to another of this runtime, and goes on in the kernel or with a long
    /// call: it must not keep others from that CPU.
    pub(crate) fn release(&self, worker: &Remote) {
        let tid = worker.tid.load(Ordering::Relaxed);
        if tid != 0 {
            let _ = scheduling::set(tid, Scheduling::ORDINARY);
            interpose::unpin_thread(tid);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        IN_USE.store(false, Ordering::Release);
    }
}

/// In the child of a fork: it is no member.
pub(crate) fn forget_in_child() {
    // SAFETY: null or a member, which is never freed.
    if let Some(member) = unsafe { MEMBER.swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() } {
        member.forget_in_child();
    }
    IN_USE.store(false, Ordering::Release);
}
