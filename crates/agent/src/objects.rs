//! The kernel's programs, as `build.rs` compiled them.

#![allow(
    dead_code,
    reason = "which there are depends on the folder `bpf/sched`, not on who uses them"
)]

include!(concat!(env!("OUT_DIR"), "/objects.rs"));
