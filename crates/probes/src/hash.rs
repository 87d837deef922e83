//! Names of cache entries.

use std::hash::{DefaultHasher, Hash, Hasher as _};

/// Returns a name for `content`: 16 hexadecimal digits. Another release of Rust may choose another name; then the
/// entry is made anew.
pub fn name(content: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
