//! DPDK as the [`Wire`](heddle_netstack::wire::Wire) of a lane: frames in and out of a card that the kernel does
//! not have.
//!
//! It compiles against Debian's libdpdk 22.11 and runs on DPDK's virtual devices. It was not run on hardware, and the
//! runtime does not use it yet (`HEDDLE_NET` knows AF_XDP only): `docs/design/netstack.md`, section DPDK.
//!
//! # Invariants
//!
//! - **I1** DPDK is initialised once in a process ([`Eal::init`]), and stays until the process ends.
//! - **I2** One thread at a time uses a queue: a [`DpdkWire`] is neither copied nor shared. Handles only ask for the
//!   number of frames that wait.
//! - **I3** A port is closed after its last wire and handle, and its buffers are freed after it.
//! - **I4** No buffer is lost: those received are freed even if their receiver panics, those not sent with their wire.
//! - **I5** DPDK's state for each thread is `__thread`, found by the register FS. In a task of Heddle, FS is the
//!   task's. So every call comes from a thread of the kernel or from a worker's own loop, never from a task. Threads
//!   that call often hold a [`Registration`].
//!
//! ```no_run
//! use heddle_dpdk::{Eal, EalOptions, PortOptions};
//! use heddle_netstack::wire::Wire;
//!
//! let eal = Eal::init(&EalOptions::default())?;
//! let mut wires = eal.open("net_af_packet0,iface=eth1", &PortOptions::default())?;
//! wires[0].exchange(16, |frame, _| println!("{} bytes", frame.len()));
//! # Ok::<(), heddle_dpdk::Error>(())
//! ```

mod eal;
mod error;
mod port;
mod shim;
mod wire;

pub use eal::{Eal, EalOptions, Memory, Registration};
pub use error::Error;
pub use port::{Link, PortOptions, Stats};
pub use shim::Code;
pub use wire::{DpdkHandle, DpdkSender, DpdkWire};
