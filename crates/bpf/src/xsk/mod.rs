//! AF_XDP sockets: frames of one receive queue of an interface, in this process's own memory.
//!
//! The frames of a queue are in one memory (the *umem*), cut to one size. The kernel takes empty frames from the
//! queue's *fill* ring and gives full ones through the *receive* ring of the socket that a program at XDP chose; a
//! socket gives frames to be sent through its *transmit* ring, and they come back through the queue's *completion*
//! ring. All sockets of a queue share its memory and these two rings ([`XdpSocket::bind_many`]): the kernel refuses a
//! second socket with a memory of its own. A socket gets frames of no queue but its own.
//!
//! - **I1** Every frame is in exactly one place: with the kernel to be filled or in a receive ring, with the kernel
//!   to be sent, lent to a caller, or free (`frames::Account`).
//! - **I2** The fill and the completion ring have room for all the frames that can ever be in them. A receive ring
//!   that a program does not empty gets full, which the kernel counts, and leaves frames for the other sockets of the
//!   queue.
//! - **I3** A received frame is lent to the caller's function and cannot be kept: it goes to be sent, or back, when the
//!   function returns.
//! - **I4** What the kernel says about frames is checked before memory is touched: an address outside of the memory is
//!   counted and not read.

mod frames;
mod memory;
mod pool;
mod ring;
mod socket;

pub use frames::Full;
pub use socket::{Copying, Counters, Frame, FrameAction, Options, XdpSocket};
