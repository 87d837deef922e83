//! What the stack does after each step of a connection.

use super::{Pending, Stack};
use crate::flows::Target;
use crate::state::State;
use crate::time_wait::TimeWait;
use heddle_core::Ns;

impl Stack {
    /// Brings lists, timers and the table of flows in line with the connection `index`.
    #[inline]
    pub(super) fn settle(&mut self, index: u32, now: Ns) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let is_visible = connection.is_attached && !connection.is_in_backlog;
        if connection.events != 0 && !connection.has_event && is_visible {
            connection.has_event = true;
            self.events.push_back(Pending::Connection(connection.id));
        }
        if connection.is_blocked && !connection.is_queued {
            connection.is_queued = true;
            self.blocked.push_back(index);
        }
        // A timer that moves away leaves the wheel's entry where it is: most are moved on again and again.
        let deadline = connection.deadline();
        if deadline < connection.timers.armed {
            connection.timers.armed = deadline;
            self.timers.arm(index, now, deadline);
        }
        debug_assert!(connection.timers.armed <= connection.deadline(), "I4");
        let is_over = matches!(connection.state, State::Closed | State::TimeWait);
        let is_starved = connection.wants_room() && !self.pool.has_room();
        if is_over || is_starved || !self.starved.is_empty() {
            self.settle_rare(index, is_over, now);
        }
    }

    #[cold]
    fn settle_rare(&mut self, index: u32, is_over: bool, now: Ns) {
        if is_over {
            self.retire(index, now);
        } else if let Some(connection) = self.connections.get_mut(index)
            && connection.wants_room()
            && !self.pool.has_room()
            && !core::mem::replace(&mut connection.is_starved, true)
        {
            self.starved.push_back(connection.id);
        }
        if self.pool.has_room() {
            self.feed();
        }
    }

    /// Wakes one writer that waits for memory.
    fn feed(&mut self) {
        let Some(id) = self.starved.pop_front() else { return };
        let Some(connection) = self.connections.get_mut(id.index).filter(|c| c.id == id) else {
            return;
        };
        connection.is_starved = false;
        connection.memory_freed();
        if connection.events != 0 && !connection.has_event && connection.is_attached {
            connection.has_event = true;
            self.events.push_back(Pending::Connection(id));
        }
    }

    /// Takes a connection that is over out of the table of flows, and forgets it if the application has.
    fn retire(&mut self, index: u32, now: Ns) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let is_attached = connection.is_attached;
        if core::mem::take(&mut connection.is_registered) {
            let (tuple, from) = (connection.tuple, Target::Connection(index));
            let hash = self.secret.flow(&tuple);
            match connection.state {
                State::TimeWait => {
                    let (nxt, receive_nxt) = (connection.send.nxt, connection.receive.nxt);
                    let timestamp = connection.last_timestamp();
                    let expires = now + self.config.time_wait;
                    let record = TimeWait::new(tuple, nxt, receive_nxt, timestamp, expires);
                    self.add_time_wait(record, hash, from);
                }
                _ => self.flows.remove(hash, from),
            }
        }
        if !is_attached {
            self.free(index);
        }
    }

    fn add_time_wait(&mut self, record: TimeWait, hash: u32, from: Target) {
        if self.config.max_time_wait == 0 {
            return self.flows.remove(hash, from);
        }
        while self.time_waits.len() >= self.config.max_time_wait {
            self.drop_oldest_time_wait();
        }
        let index = self.time_waits.insert(record);
        self.flows.replace(hash, from, Target::TimeWait(index));
        self.time_wait_order.push_back((index, self.time_waits.generation(index)));
    }

    fn drop_oldest_time_wait(&mut self) {
        let Some((index, generation)) = self.time_wait_order.pop_front() else { return };
        if self.time_waits.generation(index) == generation {
            self.counters.time_wait_overflows += 1;
            self.forget_time_wait(index);
        }
    }

    pub(super) fn forget_time_wait(&mut self, index: u32) {
        if let Some(record) = self.time_waits.remove(index) {
            self.flows.remove(self.secret.flow(&record.tuple), Target::TimeWait(index));
        }
    }

    fn free(&mut self, index: u32) {
        self.timers.cancel(index);
        if let Some(mut connection) = self.connections.remove(index) {
            connection.receive.buffer.clear(&mut self.pool);
            connection.send.buffer.clear(&mut self.pool);
            connection.clear_reassembly(&mut self.pool);
            if connection.is_queued {
                self.blocked.retain(|&blocked| blocked != index);
            }
        }
    }
}
