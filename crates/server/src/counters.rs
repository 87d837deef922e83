//! Counters of a server. Relaxed: no decision depends on them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the start.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $($(#[$doc])* pub(super) $name: Counter,)* }

        impl Counters {
            /// Names and values, for INFO.
            pub(super) fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

counters! {
    requests_get,
    requests_set,
    requests_delete,
    requests_range,
    /// memcached's touch, gat and gats, each key.
    requests_touch,
    requests_other,
    /// Keys that a GET found.
    get_hits,
    /// Keys that a GET did not find.
    get_misses,
    /// Requests that were answered with an error, by any protocol.
    request_errors,
    /// Connections ended because their input was not of their protocol.
    protocol_errors,
    /// Answers with an error of the store.
    store_errors,
    connections_accepted,
    /// Connections refused beyond the maximum.
    connections_refused,
    accept_errors,
    datagrams_received,
    datagrams_malformed,
    /// Datagrams dropped beyond the maximum in flight or the memory limit.
    datagrams_dropped,
    send_errors,
}

/// One count.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A bounded number of things that exist at the same time.
#[derive(Debug)]
pub(super) struct Gauge {
    now: AtomicUsize,
    limit: usize,
}

impl Gauge {
    pub(super) fn new(limit: usize) -> Gauge {
        Gauge { now: AtomicUsize::new(0), limit }
    }

    /// Adds one; returns false if there are too many.
    pub(super) fn enter(&self) -> bool {
        let admitted = self.now.fetch_add(1, Ordering::Relaxed) < self.limit;
        if !admitted {
            self.leave();
        }
        admitted
    }

    pub(super) fn leave(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Gauge;

    #[test]
    fn a_gauge_admits_up_to_its_limit() {
        let gauge = Gauge::new(2);
        assert_eq!([gauge.enter(), gauge.enter(), gauge.enter()], [true, true, false]);
        assert_eq!(gauge.now(), 2);
        gauge.leave();
        assert!(gauge.enter());
    }
}
