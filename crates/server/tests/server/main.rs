//! The server from outside: raw sockets, Redis' own clients, faults, signals and a hard death.

mod clients;
mod datagrams;
#[cfg(feature = "rocksdb")]
mod durability;
mod echo;
mod faults;
mod harness;
mod hostile;
mod http;
mod http_clients;
mod limits;
mod memcached;
mod memory;
mod preemption;
mod signals;
