//! Removing what is dead: attachments whose executors, sockets, interface or owner are gone. Only what the kernel says is
//! gone is dead; that something cannot be asked (too many open files, say) tells nothing.

use super::{Engine, Stored, owner, packets, place};
use crate::request::{Attachment, Error, ErrorKind};

/// What was found.
#[derive(Debug, Default)]
pub struct Upkeep {
    /// Attachments that were dead, and are removed.
    pub dead: Vec<Attachment>,
    /// What could not be told or removed now; the next time may be better.
    pub failed: Vec<Error>,
}

impl Engine {
    /// Removes the attachments whose executors are all gone, or whose owner is.
    ///
    /// # Errors
    /// If the records cannot be read. One attachment that cannot be looked at keeps no other from its end.
    pub fn collect(&self) -> Result<Upkeep, Error> {
        let _turn = self.turns.change(true);
        let _lock = self.state.lock()?;
        self.remove_dead(None)
    }

    /// The same for the attachments of one user, or of all. For whoever has the lock.
    pub(super) fn remove_dead(&self, of: Option<u32>) -> Result<Upkeep, Error> {
        let mut found = Upkeep::default();
        let mut list = self.state.list()?;
        list.retain(|attachment| of.is_none_or(|uid| uid == attachment.uid));
        for attachment in list {
            match self.is_alive(&attachment) {
                Ok(true) => {}
                Ok(false) => match self.forget(&attachment) {
                    Ok(()) => found.dead.push(attachment),
                    Err(error) => found.failed.push(about(&attachment, &error)),
                },
                Err(error) => found.failed.push(about(&attachment, &error)),
            }
        }
        if of.is_none() {
            found.failed.extend(packets::sweep(&self.state)?);
        }
        Ok(found)
    }

    fn is_alive(&self, attachment: &Attachment) -> Result<bool, Error> {
        if let Some(owner) = attachment.owner
            && !owner::alive(owner)?
        {
            return Ok(false);
        }
        match place::alive(&self.state, attachment) {
            // It has lost its pins: nothing of it decides any more.
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            result => result,
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
        place::detach(&self.state, stored, sockets)?;
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
