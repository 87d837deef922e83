//! The wire formats: parsing and writing, apart from any socket.

pub mod resp;
mod resp_words;
pub mod udp;
