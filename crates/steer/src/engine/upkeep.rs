//! Removing what is dead: attachments whose executors, sockets, interface or owner are gone. Only what the kernel says is
//! gone is dead; that something cannot be asked (too many open files, say) tells nothing.

use super::{Engine, Stored, attach_point, owner, packets};
use crate::request::{Attachment, Error, ErrorKind};

/// Why most attachments end.
const SOCKETS_CLOSED: &str = "its last socket was closed: the server has stopped, or restarted with new sockets; attach again, and with --follow it keeps up with restarts";
/// How many are remembered for the next [`Engine::collect`], which nobody may call.
const MOST_DEAD: usize = 256;

/// What was found.
#[derive(Debug, Default)]
pub struct Upkeep {
    /// Attachments that were dead, and are removed.
    pub dead: Vec<Dead>,
    /// What could not be told or removed now; the next time may be better.
    pub failed: Vec<Error>,
}

/// An attachment that ended by itself.
#[derive(Clone, Debug)]
pub struct Dead {
    /// What it was.
    pub attachment: Attachment,
    /// Why it ended, and what to do.
    pub why: String,
}

impl Engine {
    /// Removes the attachments whose executors are all gone, or whose owner is. Those that were removed on the way of some
    /// request since the last time are told of too.
    ///
    /// # Errors
    /// If the records cannot be read. One attachment that cannot be looked at keeps no other from its end.
    pub fn collect(&self) -> Result<Upkeep, Error> {
        let _turn = self.turns.change(true);
        let _lock = self.state.lock()?;
        let failed = self.remove_dead(None)?;
        Ok(Upkeep { dead: std::mem::take(&mut *self.dead()), failed })
    }

    /// Removes the dead of one user, or of all; what failed. For whoever has the lock.
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

    /// Removes a dead attachment, and keeps that and why it ended.
    fn bury(&self, attachment: &Attachment, why: String) -> Result<(), Error> {
        self.forget(attachment)?;
        let mut dead = self.dead();
        if dead.len() < MOST_DEAD {
            dead.push(Dead { attachment: attachment.clone(), why: why.clone() });
        }
        drop(dead);
        self.ended.add(attachment, &why)
    }

    /// Why an attachment is dead; `None` if it is not.
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

    /// Takes a dead attachment away, as far as it is there.
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

    /// Ends an attachment. Its maps count for as long as somebody has them.
    pub(super) fn end(
        &self,
        stored: &Stored,
        sockets: &[std::os::fd::OwnedFd],
    ) -> Result<(), Error> {
        self.accounting.ends(&self.state, stored);
        attach_point::detach(&self.state, stored, sockets)?;
        // That they cannot be written down now keeps nobody's attachment.
        let _ = self.left.add(stored.attachment.uid, &stored.maps);
        self.evicted().remove(&stored.attachment.id);
        self.state.remove(stored.attachment.id)
    }
}

fn about(attachment: &Attachment, error: &Error) -> Error {
    let (id, address) = (attachment.id, &attachment.address);
    Error::new(error.kind, format!("attachment {id} ({address}): {}", error.text))
}
