//! The key-value server on several systems.
