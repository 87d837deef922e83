//! What the control plane has done.

use heddle_sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Returns names and values, for tables and exporters.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        /// The counters themselves, written by the control thread and by all that call [`super::Control::resolve`].
        #[derive(Debug, Default)]
        pub(super) struct Counts {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counts {
            pub(super) fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Snapshots published: changes of the interface, its addresses, routes or neighbours.
    changes,
    /// Dumps of one of the kernel's tables.
    dumps,
    /// Dumps that failed or stayed inconsistent, and are repeated later.
    failed_dumps,
    /// Times the kernel dropped notifications because the thread was slow; everything was read again.
    overruns,
    /// Neighbours that the kernel was asked to resolve and keep.
    resolutions,
    /// Requests for a neighbour that had already been asked for.
    repeated,
    /// Requests for a neighbour that were dropped because the queue was full.
    queue_full,
    /// Requests for a neighbour that were dropped because the limit on entries was reached.
    limit_reached,
    /// Requests for a neighbour that make no sense: a group's address, or one of this machine.
    refused,
    /// Requests for a neighbour that the kernel refused, usually for lack of CAP_NET_ADMIN.
    denied,
    /// Neighbours given up because they did not answer.
    abandoned,
}

/// One of the counters.
pub(super) type Count = AtomicU64;

pub(super) fn add(counter: &Count) {
    counter.fetch_add(1, Ordering::Relaxed);
}
