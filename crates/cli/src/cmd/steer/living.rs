//! What the processes of this moment say of an attachment: who has the sockets of its executors, and which sockets of the
//! server are no executors.

use std::collections::BTreeSet;

use heddle_steer::hook::Hook;
use heddle_steer::process::{self, Serving, epoll_waiter, serving};
use heddle_steer::request::{Attachment, Stats};

/// The sockets at an attachment's address, as far as the caller may look into processes.
pub struct Living {
    sockets: Vec<Serving>,
    /// Whether it is known where to look.
    is_known: bool,
}

impl Living {
    /// Those of `attachment`.
    pub fn of(attachment: &Attachment) -> Self {
        let is_known = attachment.hook == Hook::SocketSelect && attachment.namespace != 0;
        if !is_known {
            return Self { sockets: Vec::new(), is_known };
        }
        let mut sockets = serving(None, attachment.port()).unwrap_or_default();
        sockets.retain(|socket| {
            socket.namespace == attachment.namespace
                && socket.protocol.name() == attachment.protocol
                && socket.address.to_string() == attachment.address
        });
        Self { sockets, is_known }
    }

    /// The sockets.
    pub fn sockets(&self) -> &[Serving] {
        &self.sockets
    }

    /// How many of the sockets are no executors.
    pub fn strangers(&self, stats: &Stats) -> usize {
        let executors: BTreeSet<u64> = stats.executors.iter().map(|e| e.socket).collect();
        self.sockets.iter().filter(|socket| !executors.contains(&socket.inode)).count()
    }

    /// Names executors after processes that live. Those that `heddle attach` named carry the process that had the socket
    /// then; it may have ended, and left the socket to others. What a program named stays.
    pub fn rename(&self, stats: &mut Stats) {
        let present = |e: &&mut heddle_steer::request::ExecutorStats| e.present && e.socket != 0;
        for executor in stats.executors.iter_mut().filter(present) {
            let Some(pid) = labelled(&executor.label) else { continue };
            match self.sockets.iter().find(|socket| socket.inode == executor.socket) {
                Some(socket) if !socket.holders.contains(&pid) => executor.label = socket.label(),
                Some(_) => {}
                None if self.is_known && process::command(pid).is_empty() => {
                    executor.label = "no process that is seen from here".into();
                }
                None => {}
            }
        }
    }

    /// The process to show for an attachment: the one that it was made for, if that lives; else one that has its sockets.
    pub fn process(&self, attachment: &Attachment) -> Option<(u32, String)> {
        let named = |pid: u32| Some((pid, process::command(pid))).filter(|(_, c)| !c.is_empty());
        let same = named(attachment.pid).filter(|(_, command)| *command == attachment.command);
        let other = || process::server(&self.sockets).and_then(named);
        // A command may change its title; a process that has the sockets is the right one.
        let holds = |pid: &u32| self.sockets.iter().any(|socket| socket.holders.contains(pid));
        same.or_else(|| Some(attachment.pid).filter(holds).and_then(named)).or_else(other)
    }
}

/// The process of a label that `heddle attach` gives: see [`Serving::label`].
fn labelled(label: &str) -> Option<u32> {
    let mut words = label.split(' ');
    let pid = (words.next() == Some("pid")).then(|| words.next()).flatten()?;
    let fd = (words.next() == Some("fd")).then(|| words.next()).flatten()?;
    let is_label = words.next().is_none() && fd.parse::<i32>().is_ok();
    pid.parse().ok().filter(|_| is_label)
}

/// What works less well than one might think: `policy` for servers that wait with epoll.
pub fn epoll_note(policy: &str, sockets: &[Serving]) -> Option<String> {
    if policy != "jiq" {
        return None;
    }
    epoll_waiter(sockets).map(|pid| {
        format!(
            "process {pid} waits with epoll, where the kernel does not show who is idle: jiq then goes by queue lengths alone, and a worker that is busy with one request looks free. Workers that block in accept or recv (gunicorn's sync workers) gain the most"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_attach_are_told_from_those_of_programs() {
        assert_eq!(labelled("pid 812 fd 5"), Some(812));
        for other in ["worker 1", "pid 812", "pid x fd 5", "pid 812 fd 5 or so", ""] {
            assert_eq!(labelled(other), None, "{other}");
        }
    }
}
