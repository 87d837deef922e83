//! The calls of [`heddle_kqueue`] under libheddle's names: `include/heddle/event.h`.

heddle_kqueue::export_calls! {
    heddle_kqueue,
    heddle_kqueue1,
    heddle_kevent,
    heddle_kqueue_close,
    heddle_kqueue_leave,
    heddle_kqueue_policy,
    heddle_kqueue_multi,
    heddle_kqueue_tune,
    heddle_kqueue_stats,
    heddle_kqueue_share,
    heddle_kqueue_frequency,
    heddle_kqueue_idle
}
