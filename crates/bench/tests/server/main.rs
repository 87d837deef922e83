//! The server from outside: raw sockets, Redis' own clients, faults, signals and a hard death.

mod clients;
mod datagrams;
#[cfg(feature = "rocksdb")]
mod durability;
mod faults;
mod harness;
mod preemption;
mod signals;
