//! Which running processes hold the sockets of an attachment's executors, and which sockets of the server are not
//! executors.

use std::collections::BTreeSet;

use heddle_steer::hook::Hook;
use heddle_steer::process::{self, Serving, serving};
use heddle_steer::request::{Attachment, Stats};

/// The sockets at an attachment's address, as far as the caller may inspect processes.
pub struct LiveSockets {
    sockets: Vec<Serving>,
    /// Whether the attachment says where to look.
    is_located: bool,
}

impl LiveSockets {
    /// Finds the sockets of `attachment`.
    pub fn of(attachment: &Attachment) -> Self {
        let is_located = attachment.hook == Hook::SocketSelect && attachment.namespace != 0;
        if !is_located {
            return Self { sockets: Vec::new(), is_located };
        }
        let mut sockets = serving(None, attachment.port()).unwrap_or_default();
        sockets.retain(|socket| {
            socket.namespace == attachment.namespace
                && socket.protocol.name() == attachment.protocol
                && socket.address.to_string() == attachment.address
        });
        Self { sockets, is_located }
    }

    /// Returns how many of the sockets are not executors.
    pub fn unattached(&self, stats: &Stats) -> usize {
        let executors: BTreeSet<u64> = stats.executors.iter().map(|e| e.socket).collect();
        self.sockets.iter().filter(|socket| !executors.contains(&socket.inode)).count()
    }

    /// Labels executors with running processes. A label by `heddle steer attach` names the process that held
    /// the socket then, which may have ended and left the socket to others. Labels by programs stay.
    pub fn relabel(&self, stats: &mut Stats) {
        let present = |e: &&mut heddle_steer::request::ExecutorStats| e.present && e.socket != 0;
        for executor in stats.executors.iter_mut().filter(present) {
            let Some(pid) = pid_in_label(&executor.label) else { continue };
            match self.sockets.iter().find(|socket| socket.inode == executor.socket) {
                Some(socket) if !socket.holders.contains(&pid) => executor.label = socket.label(),
                Some(_) => {}
                None if self.is_located && process::command(pid).is_empty() => {
                    executor.label = "no visible process".into();
                }
                None => {}
            }
        }
    }

    /// Returns the process to show for an attachment: the one it was made for if that is running, else one that
    /// holds its sockets.
    pub fn owner(&self, attachment: &Attachment) -> Option<(u32, String)> {
        let named = |pid: u32| Some((pid, process::command(pid))).filter(|(_, c)| !c.is_empty());
        let same = named(attachment.pid).filter(|(_, command)| *command == attachment.command);
        let other = || process::server(&self.sockets).and_then(named);
        // A process may change its title; one that holds the sockets is the right one.
        let holds = |pid: &u32| self.sockets.iter().any(|socket| socket.holders.contains(pid));
        same.or_else(|| Some(attachment.pid).filter(holds).and_then(named)).or_else(other)
    }
}

/// Returns the process in a label by `heddle steer attach`: see [`Serving::label`].
fn pid_in_label(label: &str) -> Option<u32> {
    let mut words = label.split(' ');
    let pid = (words.next() == Some("pid")).then(|| words.next()).flatten()?;
    let fd = (words.next() == Some("fd")).then(|| words.next()).flatten()?;
    let is_label = words.next().is_none() && fd.parse::<i32>().is_ok();
    pid.parse().ok().filter(|_| is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_by_attach_are_distinguished_from_labels_by_programs() {
        assert_eq!(pid_in_label("pid 812 fd 5"), Some(812));
        for other in ["worker 1", "pid 812", "pid x fd 5", "pid 812 fd 5 or so", ""] {
            assert_eq!(pid_in_label(other), None, "{other}");
        }
    }
}
