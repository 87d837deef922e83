//! Bytes of connections, in pooled blocks that exist only while they hold data.

mod chain;
mod pool;

pub use chain::{Chain, Cursor};
pub use pool::Pool;
