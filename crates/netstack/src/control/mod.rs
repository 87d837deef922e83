//! What the kernel knows of an interface: its state, addresses, routes and neighbours.
//!
//! The kernel stays the control plane: `ip`, DHCP, router advertisements and routing daemons configure it, and it
//! answers ARP and neighbour discovery. [`Control`] follows it over netlink and publishes immutable [`Snapshot`]s, in
//! which senders look up the next hop and its Ethernet address without a system call.
//!
//! # Invariants
//!
//! - **I1** A snapshot never changes. Its generation is one more than that of the snapshot before it, and differs from
//!   it in what it describes.
//! - **I2** What cannot be decided here goes to the kernel ([`Route::Kernel`]); it is never guessed.
//! - **I3** No call of a sender blocks: [`Control::generation`] is a load, [`Control::resolve`] drops and counts what
//!   does not fit.
//! - **I4** Of the kernel's state only neighbour entries are changed, at most [`MAX_NEIGHBOURS`] but for those that the
//!   kernel is about to remove, never permanent ones or those of other programs. They are removed at the end; those of
//!   a killed process stay, marked with protocol [`NEIGHBOUR_PROTOCOL`], until their interface goes down or an
//!   administrator removes them.

mod address;
mod asked;
mod builder;
mod counters;
mod error;
mod handle;
mod keeper;
mod mac;
mod mirror;
mod netlink;
mod pace;
mod prefix;
mod routes;
mod snapshot;
mod support;
#[cfg(test)]
mod tests;
mod thread;

pub use address::InterfaceAddress;
pub use builder::SnapshotBuilder;
pub use counters::Counters;
pub use error::ControlError;
pub use handle::Control;
pub use mac::Mac;
pub use prefix::Prefix;
pub use snapshot::{Resolution, Route, Snapshot};

/// The most neighbours that the kernel is asked to keep for one interface.
pub const MAX_NEIGHBOURS: usize = 4096;

/// The protocol number that marks our neighbour entries; `ip neighbour` shows it as `proto 72`.
pub const NEIGHBOUR_PROTOCOL: u8 = 72;
