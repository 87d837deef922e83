//! libheddle_kqueue: kqueue's calls under their own names, for programs and libraries that look for them: libevent builds its kqueue
//! backend where they can be linked. `include/kqueue/sys/event.h` is its documentation; what the calls do is libheddle's code.

#[path = "../../capi/src/events/mod.rs"]
mod events;

mod error;

use events::exports::exports;

exports! {
    kqueue,
    kqueue1,
    kevent,
    kqueue_close,
    kqueue_leave,
    kqueue_policy,
    kqueue_multi,
    kqueue_tune,
    kqueue_stats,
    kqueue_share,
    kqueue_frequency
}
