//! The ordered key-value store behind the server.
