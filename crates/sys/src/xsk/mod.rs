//! AF_XDP sockets: frames of one receive queue of an interface, in this process's own memory.
//!
//! A socket has a memory of its own (the *umem*), cut into frames of one size, and four rings that it shares with the
//! kernel: the kernel takes empty frames from the *fill* ring and gives full ones through the *receive* ring; the
//! program gives frames to be sent through the *transmit* ring and gets them back through the *completion* ring. One
//! memory serves one socket, and one socket one queue: a shared memory with several sockets of a queue is refused by
//! the kernel, and a socket gets frames of no queue but its own.
//!
//! - **I1** Every frame is in exactly one place: with the kernel to be filled, with the kernel to be sent, or free
//!   ([`frames::Account`]).
//! - **I2** No ring overflows: each has room for all the frames that can ever be in it.
//! - **I3** A received frame is lent to the caller's function and cannot be kept: it goes to be sent, or back, when the
//!   function returns.
//! - **I4** What the kernel says about frames is checked before memory is touched: an address outside of the memory is
//!   counted and not read.

mod frames;
mod memory;
mod ring;
mod socket;

pub use frames::Full;
pub use socket::{Copying, Counters, Frame, Options, Then, XdpSocket};
