//! The wire formats: parsing and writing, apart from any socket.

pub mod udp;
