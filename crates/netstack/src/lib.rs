//! The user-space network stack of Heddle's runtime.
//!
//! The design is in `docs/design/netstack.md`.

#![forbid(unsafe_code)]

pub mod control;
