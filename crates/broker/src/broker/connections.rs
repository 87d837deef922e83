//! Connections: who is heard, and what with.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use heddle_core::Ns;
use heddle_share::wire::{self, Message, NoMessage, Packet};
use heddle_sys::socket;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use super::{Broker, Client, Leaving};
use crate::budget::Budget;

/// Connections that are accepted at one look.
const ACCEPTS_AT_ONCE: usize = 8;

/// Packets of a client in a second, and more for each CPU: a member that waits complains a hundred times.
const PACKETS: u64 = 200;
const PACKETS_PER_CPU: u64 = 200;

/// How many packets a request counts that takes the broker longer.
const COSTLY: u64 = 20;

impl Broker {
    pub(super) fn accept(&mut self, now: Ns) {
        for _ in 0..ACCEPTS_AT_ONCE {
            // Those that are too many wait: a job may start programs faster.
            if !self.accepts.has_any(now) {
                return;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.listener.socket, flags) {
                Ok(socket) => {
                    self.accepts.take(1, now);
                    self.add_client(socket, now);
                }
                Err(
                    rustix::io::Errno::AGAIN
                    | rustix::io::Errno::INTR
                    | rustix::io::Errno::CONNABORTED,
                ) => return,
                Err(_) => {
                    // Out of descriptors: those who wait do so for a moment.
                    self.accepts.take(u64::MAX, now);
                    return;
                }
            }
        }
    }

    fn add_client(&mut self, socket: OwnedFd, now: Ns) {
        let Ok((pid, uid, _)) = socket::peer_credentials(socket.as_fd()) else { return };
        let budget = PACKETS + PACKETS_PER_CPU * self.config.cpus.len() as u64;
        let budget = Budget::new(budget, now);
        let client = Client { socket, pid, uid, since: now, budget, app: None };
        if self.closing.is_stuck(uid) {
            let why = "descriptors that you sent cannot be closed: end the programs that sent them";
            return self.close(client, Some(why));
        }
        let free = self.clients.iter().position(Option::is_none).or_else(|| {
            let oldest = self.oldest_outsider()?;
            self.drop_client(oldest, Some("there are too many connections: try again"), now);
            Some(oldest)
        });
        match free {
            Some(free) => self.clients[free] = Some(client),
            None => self.close(client, Some("there are too many connections: try again")),
        }
    }

    /// Returns the oldest connection that is no member's.
    fn oldest_outsider(&self) -> Option<usize> {
        let clients = self.clients.iter().enumerate();
        let outsiders = clients.filter_map(|(at, it)| {
            it.as_ref().filter(|it| it.app.is_none()).map(|it| (it.since, at))
        });
        outsiders.min().map(|(_, at)| at)
    }

    /// Hears one packet of a client.
    pub(super) fn hear(&mut self, at: usize, now: Ns) {
        let Some(client) = &mut self.clients[at] else { return };
        let Packet { message, mut fds } = match wire::receive_packet(&client.socket) {
            Ok(packet) => packet,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return self.drop_client(at, None, now),
        };
        let uid = client.uid;
        let cost = match message {
            Ok(Message::Join { .. } | Message::Status) => COSTLY,
            _ => 1,
        };
        let refusal = match message {
            _ if !client.budget.take(cost, now) => {
                Some("your program sends more than a program of a share needs to".into())
            }
            Err(NoMessage::Gone) => {
                self.closing.close(uid, fds);
                return self.drop_client(at, None, now);
            }
            Err(NoMessage::Malformed) => Some("that is no message of this protocol".into()),
            Ok(Message::Join { version, class, name }) => {
                self.join(at, (version, class, &name), now).err()
            }
            Ok(Message::Ready) => self.begin(at, &mut fds, now).err(),
            Ok(Message::Alert(cpu)) => self.heed(at, cpu as usize, now).err(),
            Ok(Message::Status) => self.answer(at, now).err(),
            Ok(_) => Some("only a broker says that".into()),
        };
        self.closing.close(uid, fds);
        if let Some(why) = refusal {
            self.drop_client(at, Some(&why), now);
        }
    }

    /// Ends a connection, and the membership that hangs on it.
    pub(super) fn drop_client(&mut self, at: usize, why: Option<&str>, now: Ns) {
        let Some(client) = &self.clients[at] else { return };
        match (client.app, why) {
            (Some(app), Some(why)) => self.remove(app, Leaving::Removed(why.into()), now),
            (Some(app), None) => self.remove(app, Leaving::HungUp, now),
            (None, why) => {
                if let Some(client) = self.clients[at].take() {
                    self.close(client, why);
                }
            }
        }
    }

    /// Closes a connection, with a last word.
    pub(super) fn close(&mut self, client: Client, why: Option<&str>) {
        if let Some(why) = why {
            let _ = wire::send(&client.socket, &Message::Refused(why.into()), &[]);
        }
        // The client learns of it at once, however long the rest takes.
        let _ = shutdown(&client.socket, Shutdown::Both);
        self.closing.close_connection(client.uid, client.socket);
    }
}
