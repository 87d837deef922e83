//! The constants of the result format.

/// The version of the result format that this crate writes, and the only one it reads.
pub const SCHEMA: u32 = 1;

/// The markup around the results in an HTML report.
pub(crate) const EMBED_OPEN: &str = "<script type=\"application/json\" id=\"heddle-results\">";
pub(crate) const EMBED_CLOSE: &str = "</script>";
