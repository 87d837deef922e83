//! Lanes: a process's own network in user space, on an interface of its own.
//!
//! A lane has an AF_XDP socket on each receive queue. A [`Deployment`] attaches the program that gives it its packets
//! (`bpf/steer/hooks/xdp_lane.c`) to the interface, by a link that ends with the process: then everything goes to the
//! kernel again. Packets go to lanes if they are to a claimed port ([`Deployment::claim`]), of a connection that the
//! process opened ([`Deployment::add_outgoing`]), or ICMP errors about either, which go to lane 0.
//!
//! - **I1** Packets that are not the process's pass, and cost one read of an array.
//! - **I2** All segments of a connection go to one lane, or all to the kernel, whatever the policy is.
//! - **I3** A claim ends with the last of the kernel's sockets that prove it.
//! - **I4** Every packet that is dropped or goes elsewhere than chosen is counted.

mod claims;
mod counts;
pub(crate) mod kind;
mod local;
mod options;
mod outgoing;
mod ports;
mod program;

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use heddle_bpf::{Link, Program};

use crate::executor::{LINES, Lines};
use crate::hook::xdp::{self, Interface, Mode, map};
use crate::policy::Maps;
pub use claims::{ClaimError, MAX_PROOFS};
pub use counts::Counts;
pub use options::{Cidr, DeployError, MAX_LANES, Options};
use ports::Ports;

/// The lanes' program on an interface. All calls are from any thread. When it is dropped, or its process ends, all
/// packets go to the kernel.
#[derive(Debug)]
pub struct Deployment {
    // First, so that it is dropped first: a program without claims is no use.
    link: Link,
    program: Program,
    maps: Maps,
    interface: Interface,
    mode: Mode,
    queues: u32,
    lanes: u32,
    ports: Mutex<Ports>,
}

impl Deployment {
    /// Attaches the program to `interface`, which must have none. Wildcard claims mean the addresses that the
    /// interface's network namespace has now; see [`Self::set_local`].
    ///
    /// # Errors
    /// See [`DeployError`]; nothing is left behind.
    pub fn attach(interface: Interface, options: &Options) -> Result<Self, DeployError> {
        let system = |error| {
            let interface = interface.name().to_owned();
            DeployError::System { interface, error }
        };
        let refusal = interface.run(|| Ok(kind::refusal(interface.name()))).map_err(system)?;
        if let Some(kind::Refusal { found, advice }) = refusal {
            return Err(DeployError::Kind(format!("{found}: {advice}")));
        }
        let loaded = program::load(options);
        let (program, maps) = loaded.map_err(|error| error.on(interface.name()))?;
        let prepare = || {
            let ports = Ports::new(map(&maps, "hd_ports")?)?;
            local::set(&maps, &interface.run(heddle_sys::socket::local_addresses)?)?;
            let queues = interface.run(|| Ok(receive_queues(interface.name())))?;
            Ok((Mutex::new(ports), queues))
        };
        let (ports, queues) = prepare().map_err(system)?;
        let (link, mode) = xdp::attach(&interface, &program, options.mode)?;
        let lanes = options.lanes;
        Ok(Self { link, program, maps, interface, mode, queues, lanes, ports })
    }

    /// Returns the interface.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns whether the program is still on the interface: the interface may be gone.
    ///
    /// # Errors
    /// The kernel's.
    pub fn is_attached(&self) -> io::Result<bool> {
        Ok(self.link.interface()? != 0)
    }

    /// Returns where the program runs.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns how many receive queues the interface had when the program was attached. A lane needs a socket on each.
    #[must_use]
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// Returns how many lanes there are.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Makes an AF_XDP socket on receive queue `queue` the one of `lane` there. The kernel removes it when it closes.
    /// Packets for a lane on a queue where it has none pass and are counted.
    ///
    /// # Errors
    /// `InvalidInput` if there is no such lane or queue; the kernel's, if it is not an AF_XDP socket.
    pub fn put_socket(&self, lane: u32, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.check_lane(lane)?;
        xdp::put_socket(&self.maps, lane, queue, socket)
    }

    /// Replaces the addresses that wildcard claims mean: all that the machine has in the interface's network
    /// namespace, except the loopback's, as they change. Packets to others, also to multicast groups and broadcast,
    /// pass to the kernel, which gives the process's socket its copy.
    ///
    /// # Errors
    /// `E2BIG` if there are more than 4096; the kernel's. Some addresses may be of the former ones then.
    pub fn set_local(&self, addresses: &[IpAddr]) -> io::Result<()> {
        local::set(&self.maps, addresses)
    }

    /// Returns the lines in which lanes report their work to the policy; `None` if it reads none.
    ///
    /// # Errors
    /// The system's.
    pub fn lines(&self) -> io::Result<Option<Lines>> {
        self.maps.get(LINES).map(Lines::new).transpose()
    }

    /// Returns the program in the kernel.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    fn check_lane(&self, lane: u32) -> io::Result<()> {
        if lane < self.lanes {
            return Ok(());
        }
        let text = format!("there is no lane {lane}: there are {}", self.lanes);
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As the driver says, or else the kernel's list, which is that of the namespace that mounted /sys.
pub(crate) fn receive_queues(name: &str) -> u32 {
    heddle_sys::interface::receive_queues(name).unwrap_or_else(|_| {
        let entries = std::fs::read_dir(format!("/sys/class/net/{name}/queues"));
        let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
        let receive = names.filter(|name| name.to_string_lossy().starts_with("rx-")).count();
        u32::try_from(receive).map_or(1, |count| count.max(1))
    })
}
