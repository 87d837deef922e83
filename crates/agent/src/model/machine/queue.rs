//! Message queues: bounded, counted, in order.

use super::super::{Message, QueueId, QueueWord};
use super::kernel::Kernel;
use crate::BackendError;
use heddle_core::TaskId;
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Queue {
    /// 0: the queue is destroyed.
    pub enclave: u32,
    pub word: QueueWord,
    pub ring: VecDeque<Message>,
    pub room: usize,
    pub wakes: bool,
    /// A wait on it was asked to end.
    pub woken: bool,
}

impl Kernel {
    pub fn add_queue(&mut self, enclave: u32, room: usize, wakes: bool) -> QueueId {
        let (word, ring) = (QueueWord::default(), VecDeque::new());
        self.queues.push(Queue { enclave, word, ring, room, wakes, woken: false });
        QueueId(self.queues.len() as u32 - 1)
    }

    /// Sends a message. The queue's number grows before the message is there, even if there is no room.
    pub fn send(&mut self, queue: QueueId, message: Message) {
        let queue = &mut self.queues[queue.0 as usize];
        queue.word.aseq = queue.word.aseq.next();
        if queue.ring.len() >= queue.room {
            queue.word.lost += 1;
            return;
        }
        queue.ring.push_back(Message { aseq: queue.word.aseq, ..message });
        self.bell |= queue.wakes;
    }

    /// Returns a queue of `enclave`.
    pub fn queue_of(&mut self, enclave: u32, queue: QueueId) -> Result<&mut Queue, BackendError> {
        let found = self.queues.get_mut(queue.0 as usize);
        found.filter(|found| found.enclave == enclave).ok_or(BackendError::NoQueue(queue))
    }

    pub fn destroy(&mut self, enclave: u32, queue: QueueId) -> Result<(), BackendError> {
        let default = self.enclave(enclave).queue;
        let found = self.queue_of(enclave, queue)?;
        if found.word.associated > 0 || queue == default {
            return Err(BackendError::InUse(queue, found.word.associated));
        }
        found.enclave = 0;
        found.ring.clear();
        let cpus = self.cpus.iter_mut().filter(|cpu| cpu.enclave == enclave && cpu.queue == queue);
        cpus.for_each(|cpu| cpu.queue = default);
        Ok(())
    }

    pub fn associate(
        &mut self,
        enclave: u32,
        thread: TaskId,
        queue: QueueId,
    ) -> Result<(), BackendError> {
        let word = self.word(thread);
        if word.enclave != enclave {
            return Err(BackendError::NoThread(thread));
        }
        self.queue_of(enclave, queue)?;
        let old = &mut self.queues[word.queue.0 as usize];
        if old.ring.iter().any(|message| message.tid == word.tid && message.kind.is_of_thread()) {
            return Err(BackendError::Pending(thread));
        }
        old.word.associated -= 1;
        self.queues[queue.0 as usize].word.associated += 1;
        self.threads[thread.index()].word.queue = queue;
        Ok(())
    }
}
