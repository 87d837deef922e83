//! AF_XDP sockets: the frames of one receive queue of an interface, in this process's memory.
//!
//! The frames of a queue lie in one memory area (the *umem*) and have the same size. The kernel takes empty frames from
//! the queue's *fill* ring and returns full ones through the *receive* ring of the socket that an XDP program chose. A
//! socket sends frames through its *transmit* ring, and they return through the queue's *completion* ring. All sockets
//! of a queue share its umem and these two rings ([`XdpSocket::bind_many`]): the kernel refuses a second socket with
//! its own umem. A socket gets only frames of its own queue.
//!
//! Frames that are larger than the interface takes go by a packet socket ([`Offload`]), if the socket is given one.
//!
//! - **I1** Every frame is in exactly one place: with the kernel to be filled or in a receive ring, with the kernel
//!   to be sent, in reserve with a socket that will send, lent to a caller, or free (`frames::Account`).
//! - **I2** The fill ring and the completion ring have room for all frames that can ever be in them, with those of the
//!   fill ring that the kernel has passed on and not yet released. A receive ring that its socket does not empty fills
//!   up, which the kernel counts, and leaves frames for the queue's other sockets.
//! - **I3** A received frame is lent to the caller's function and cannot be kept: when the function returns, the frame
//!   is sent or recycled.
//! - **I4** The kernel's descriptors are checked before memory is accessed: an address outside the umem is counted, not
//!   read.

mod frame;
mod frames;
mod memory;
mod offload;
mod pool;
mod ring;
mod sender;
mod socket;

pub use frame::Frame;
pub use frames::{FrameCounts, Full};
pub use offload::{Offload, OffloadHandle, Segmentation};
pub use ring::Pending;
pub use sender::{Kicked, Sender, kick};
pub use socket::{Copying, Counters, FrameAction, Options, XdpSocket};
