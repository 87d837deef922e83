//! The kernel's programs, as `build.rs` compiled them.

#![allow(dead_code, reason = "the constants depend on the folder `bpf/sched`, not on their users")]

include!(concat!(env!("OUT_DIR"), "/objects.rs"));
