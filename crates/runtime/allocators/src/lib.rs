//! The storm that the tests raise, which is the runtime's own.

#[path = "../../tests/common/mod.rs"]
pub mod common;
