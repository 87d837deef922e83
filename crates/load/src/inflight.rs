//! Requests that wait for an answer.

use super::mix::Op;
use heddle_core::Ns;
use std::collections::VecDeque;

/// A request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The operation.
    pub op: Op,
    /// When it was due.
    pub intended: Ns,
    /// Whether it counts: requests of the warm-up do not.
    pub counted: bool,
}

/// The requests without an answer, oldest first.
///
/// Request ids are consecutive, so an id is a position: no hashing, and expired requests are at the front.
/// The length is bounded by the rate times the time limit.
#[derive(Debug, Default)]
pub struct InFlight {
    first_id: u64,
    waiting: VecDeque<Option<Waiting>>,
}

impl InFlight {
    /// The id that the next request gets.
    pub fn next_id(&self) -> u64 {
        self.first_id + self.waiting.len() as u64
    }

    /// Adds a request that was sent with [`InFlight::next_id`].
    pub fn push(&mut self, request: Waiting) {
        self.waiting.push_back(Some(request));
    }

    /// The request that an answer belongs to; `None` for one that was answered, given up or never sent.
    pub fn take(&mut self, id: u64) -> Option<Waiting> {
        let index = usize::try_from(id.checked_sub(self.first_id)?).ok()?;
        let request = self.waiting.get_mut(index)?.take();
        self.drop_answered();
        request
    }

    /// Removes one request that was due before `limit`, if there is one.
    pub fn expire(&mut self, limit: Ns) -> Option<Waiting> {
        let oldest = self.waiting.front().copied().flatten()?;
        if oldest.intended >= limit {
            return None;
        }
        self.take(self.first_id)
    }

    /// Whether every request has its answer.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps a waiting request at the front, which `expire` relies on.
    fn drop_answered(&mut self) {
        while let Some(None) = self.waiting.front() {
            self.waiting.pop_front();
            self.first_id += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn request(at: u64) -> Waiting {
        Waiting { op: Op::Get, intended: Ns(at), counted: true }
    }

    #[test]
    fn an_answer_counts_once() {
        let mut all = InFlight::default();
        all.push(request(1));
        all.push(request(2));
        assert_eq!(all.take(1), Some(request(2)));
        assert_eq!(all.take(1), None, "a duplicated datagram");
        assert_eq!(all.take(7), None, "an answer without a request");
        assert_eq!(all.expire(Ns(1)), None);
        assert_eq!(all.expire(Ns(5)), Some(request(1)));
        assert_eq!(all.take(0), None, "an answer after the time limit");
        assert!(all.is_empty());
        assert_eq!(all.next_id(), 2);
    }

    proptest! {
        /// Compared with a map: in whatever order answers arrive, each request ends exactly once.
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((0u8..3, 0u64..40), 0..200)) {
            let (mut all, mut model) = (InFlight::default(), BTreeMap::new());
            for (now, (kind, id)) in steps.into_iter().enumerate() {
                match kind {
                    0 => {
                        model.insert(all.next_id(), request(now as u64));
                        all.push(request(now as u64));
                    }
                    1 => prop_assert_eq!(all.take(id), model.remove(&id)),
                    _ => {
                        let limit = Ns(id);
                        let oldest = model.first_key_value().map(|(k, v)| (*k, *v));
                        let expected = oldest.filter(|(_, w)| w.intended < limit);
                        prop_assert_eq!(all.expire(limit), expected.map(|(_, w)| w));
                        expected.map(|(k, _)| model.remove(&k));
                    }
                }
                prop_assert_eq!(all.is_empty(), model.is_empty());
            }
        }
    }
}
