//! The kernel's programs, compiled with this crate.

include!(concat!(env!("OUT_DIR"), "/objects.rs"));
