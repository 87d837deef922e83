//! A runtime whose workers share their CPUs with those of other programs: they come and go with their CPUs
//! ([`heddle_share`]).
//!
//! A worker is *active* on its CPU while its loop and its tasks run. It leaves the CPU where it parks, and takes it
//! again where it wakes up. Where another program's worker is to have the CPU, its task is preempted as at the end of a
//! quantum, waits in its own queue, and the worker waits in its loop.

use crate::alarm;
use crate::config::ConfigError;
use crate::interpose;
use crate::preempt::Mechanism;
use crate::worker::Remote;
use heddle_share::{Kind, Member};
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

/// The process's membership: it has one, for as long as it lives.
static MEMBER: AtomicPtr<Member> = AtomicPtr::new(std::ptr::null_mut());

/// A runtime uses it.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// A runtime's use of the membership.
#[derive(Debug)]
pub(crate) struct Share(&'static Member);

impl Share {
    /// Makes the process a member, unless it is one.
    pub(crate) fn join(config: &ShareConfig, mechanism: Mechanism) -> Result<Share, ConfigError> {
        if mechanism == Mechanism::None {
            return Err(ConfigError::ShareNeedsPreemption);
        }
        if IN_USE.swap(true, Ordering::AcqRel) {
            return Err(ConfigError::ShareInUse);
        }
        // SAFETY: null or a member, which lives for ever.
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
                Err(ConfigError::Share(error))
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
    // SAFETY: null or a member, which lives for ever.
    if let Some(member) = unsafe { MEMBER.swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() } {
        member.forget_in_child();
    }
    IN_USE.store(false, Ordering::Release);
}
