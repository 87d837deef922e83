//! Removing dead attachments: those whose executors, sockets, interface or owner are gone. An attachment is
//! dead only if the kernel says so; a failed query (too many open files, say) proves nothing.

use super::{Engine, Stored, attach_point, owner, packets};
use crate::request::{Attachment, Error, ErrorKind};

/// Why most attachments end.
const SOCKETS_CLOSED: &str = "its last socket was closed: the server has stopped, or restarted with new \
    sockets; attach again, and with --follow it keeps up with restarts";
/// How many are remembered for the next [`Engine::collect`], which may never be called.
const MOST_DEAD: usize = 256;

/// The result of a collection.
#[derive(Debug, Default)]
pub struct Upkeep {
    /// Attachments that were dead, and have been removed.
    pub dead: Vec<Dead>,
    /// What could not be determined or removed now; the next attempt may succeed.
    pub failed: Vec<Error>,
}

/// An attachment that ended by itself.
#[derive(Clone, Debug)]
pub struct Dead {
    /// The former attachment.
    pub attachment: Attachment,
    /// Why it ended, and what to do.
    pub why: String,
}

impl Engine {
    /// Removes the attachments whose executors are all gone, or whose owner is. Also reports those removed by
    /// other requests since the last call.
    ///
    /// # Errors
    /// If the records cannot be read. An attachment that cannot be examined does not keep others from being
    /// removed.
    pub fn collect(&self) -> Result<Upkeep, Error> {
        let _turn = self.turns.change(true);
        let _lock = self.state.lock()?;
        let failed = self.remove_dead(None)?;
        Ok(Upkeep { dead: std::mem::take(&mut *self.dead()), failed })
    }

    /// Removes the dead attachments of one user, or of all; returns failures. Call with the lock.
    pub(super) fn remove_dead(&self, of: Option<u32>) -> Result<Vec<Error>, Error> {
        let mut failed = Vec::new();
        let mut list = self.state.list()?;
        list.retain(|attachment| of.is_none_or(|uid| uid == attachment.uid));
        for attachment in list {
            let removed = match self.death(&attachment) {
                Ok(None) => Ok(()),
                Ok(Some(why)) => self.bury(&attachment, why),
                Err(error) => Err(error),
            };
            failed.extend(removed.err().map(|error| about(&attachment, &error)));
        }
        if of.is_none() {
            failed.extend(packets::sweep(&self.state)?);
        }
        Ok(failed)
    }

    /// Removes a dead attachment, and records it with the reason.
    fn bury(&self, attachment: &Attachment, why: String) -> Result<(), Error> {
        self.forget(attachment)?;
        let mut dead = self.dead();
        if dead.len() < MOST_DEAD {
            dead.push(Dead { attachment: attachment.clone(), why: why.clone() });
        }
        drop(dead);
        self.ended.add(attachment, &why)
    }

    /// Returns why an attachment is dead; `None` if it is not.
    fn death(&self, attachment: &Attachment) -> Result<Option<String>, Error> {
        if let Some(owner) = attachment.owner
            && !owner::alive(owner)?
        {
            return Ok(Some(format!("process {} ended, which owned it", owner.pid)));
        }
        match attach_point::alive(&self.state, attachment) {
            Err(error) if error.kind == ErrorKind::NotFound => {
                Ok(Some("its programs were removed from the BPF file system".into()))
            }
            Ok(false) if attachment.interface.is_some() => {
                Ok(Some("its last socket was closed, or its interface is gone".into()))
            }
            Ok(false) => Ok(Some(SOCKETS_CLOSED.into())),
            Ok(true) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a dead attachment, as far as it exists.
    fn forget(&self, attachment: &Attachment) -> Result<(), Error> {
        match self.state.open(attachment.id) {
            Ok(stored) => self.end(&stored, &[]),
            Err(error) if error.kind == ErrorKind::NotFound => {
                self.evicted().remove(&attachment.id);
                self.state.remove(attachment.id)
            }
            Err(error) => Err(error),
        }
    }

    /// Ends an attachment. Its maps count as long as any process holds them.
    pub(super) fn end(
        &self,
        stored: &Stored,
        sockets: &[std::os::fd::OwnedFd],
    ) -> Result<(), Error> {
        self.accounting.ends(&self.state, stored);
        attach_point::detach(&self.state, stored, sockets)?;
        // A failure to record them must not keep an attachment from ending.
        let _ = self.left.add(stored.attachment.uid, &stored.maps);
        self.evicted().remove(&stored.attachment.id);
        self.state.remove(stored.attachment.id)
    }
}

fn about(attachment: &Attachment, error: &Error) -> Error {
    let (id, address) = (attachment.id, &attachment.address);
    Error::new(error.kind, format!("attachment {id} ({address}): {}", error.text))
}
