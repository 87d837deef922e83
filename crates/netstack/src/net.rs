//! The lanes of a runtime, and what they share.

use crate::capture;
use crate::control::{Control, ControlError, Snapshot};
use crate::lane::{Lane, Token};
use crate::options::{Mode, Options};
use crate::retired::Retired;
use crate::steering::{DEPLOYERS, Protocol, Steering};
use crate::udp::UdpSocket;
use crate::wire::{OpenError, XskWire, open_queue};
use heddle_sys::fork;
use heddle_tcp::{Congestion, Secret, Stack};
use heddle_xsk as xsk;
use rustix::rand::GetRandomFlags;
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory for the frames of all lanes, in bytes, unless the options say how many there are.
const FRAME_MEMORY: u64 = 256 << 20;

/// Bytes of a frame: an Ethernet packet of 1,500 bytes and the kernel's headroom.
const FRAME: u32 = 2048;

/// The largest MTU whose packets fit a frame: the kernel keeps 256 bytes, Ethernet takes 14.
const MAX_MTU: u32 = FRAME - 256 - 14;

/// The policy under which a connection is always where its hash says.
const BY_HASH: &str = "hash";

/// Why lanes cannot be opened on an interface.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The program was built without the steering layer.
    #[error(
        "this program was built without the steering layer, which lanes need: enable the feature `bypass` of the crate \
         `heddle`"
    )]
    NoSteering,
    /// The interface, or what the kernel says about it.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Packets do not fit frames.
    #[error(
        "packets of `{interface}` have up to {mtu} bytes, and frames of lanes hold {MAX_MTU}: lower its MTU \
         (`ip link set {interface} mtu 1500`)"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
    },
    /// The program at XDP.
    #[error("{0}")]
    Steering(#[source] Box<dyn Error + Send + Sync>),
    /// AF_XDP sockets.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file of `pcap=`.
    #[error("cannot record frames in `{0}`: {1}")]
    Capture(String, #[source] io::Error),
    /// The system's random numbers.
    #[error("the system has no random numbers: {0}")]
    Random(#[source] io::Error),
    /// Making the sockets known to the program.
    #[error("the program at XDP refuses an AF_XDP socket: {0}")]
    Socket(#[source] io::Error),
}

/// The lanes of a runtime on one interface.
pub struct Net {
    pub(crate) lanes: Box<[Lane<XskWire>]>,
    options: Options,
    // Before the steering: its hook uses that.
    control: Arc<Control>,
    pub(crate) steering: Arc<dyn Steering>,
    pub(crate) retired: Retired,
    /// The process that opened it.
    process: u32,
    /// All that are bound: lanes know them, too, but their locks are not for those who only look.
    udp: Mutex<Vec<Arc<UdpSocket>>>,
}

impl Net {
    /// Opens `lanes` lanes on the interface that `options` names, in the calling thread's network namespace.
    ///
    /// # Errors
    /// See [`NetError`].
    pub fn open(mut options: Options, lanes: u32) -> Result<Net, NetError> {
        options.congestion.get_or_insert_with(system_congestion);
        let deploy = DEPLOYERS.first().ok_or(NetError::NoSteering)?;
        let control = Arc::new(Control::start(&options.interface)?);
        let snapshot = control.snapshot();
        if snapshot.mtu() > MAX_MTU {
            return Err(NetError::Mtu { interface: options.interface, mtu: snapshot.mtu() });
        }
        let steering: Arc<dyn Steering> =
            deploy(&options, lanes).map_err(NetError::Steering)?.into();
        let lanes = open_lanes(&options, lanes, &control, &*steering)?;
        if let Some(path) = &options.pcap {
            let captures = capture::start(path, &options.interface, lanes.len());
            let captures = captures.map_err(|error| NetError::Capture(path.clone(), error))?;
            lanes.iter().zip(captures).for_each(|(lane, capture)| lane.set_capture(capture));
        }
        if options.policy != BY_HASH {
            lanes.iter().for_each(Lane::keep_strays);
        }
        let hooked = Arc::downgrade(&steering);
        control.on_change(Box::new(move |snapshot| {
            hooked.upgrade().iter().for_each(|steering| set_local(&**steering, snapshot));
        }));
        set_local(&*steering, &control.snapshot());
        Ok(Net {
            lanes,
            options,
            control,
            steering,
            retired: Retired::default(),
            process: fork::generation(),
            udp: Mutex::default(),
        })
    }

    /// Returns the lanes.
    #[must_use]
    pub fn lanes(&self) -> &[Lane<XskWire>] {
        &self.lanes
    }

    /// Returns how the lanes work.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns what the kernel says about the interface.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Returns the program at XDP.
    #[must_use]
    pub fn steering(&self) -> &dyn Steering {
        &*self.steering
    }

    /// Returns whether the calling process is the one that opened it. Rings and frames are shared with the child of a
    /// fork, which must use nothing of it: it would send and receive for its parent.
    #[inline]
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.process == fork::generation()
    }

    /// Returns whether packets to `address` can arrive at the interface: it is one of its addresses, or any.
    #[must_use]
    pub fn serves(&self, address: IpAddr) -> bool {
        address.is_unspecified() || self.control.snapshot().is_local(address)
    }

    /// Makes the lanes receive what arrives for `local`, which the kernel's `socket` is bound to. Readiness is reported
    /// with `token`. The caller holds preemption off.
    ///
    /// # Errors
    /// The kernel's, or that another claim has the address.
    pub fn bind_udp(
        &self,
        local: SocketAddr,
        socket: BorrowedFd<'_>,
        token: Token,
    ) -> io::Result<Arc<UdpSocket>> {
        let bound = Arc::new(UdpSocket::new(local, token));
        // Lanes know it before packets come.
        self.lanes.iter().for_each(|lane| lane.add_udp(&bound));
        if let Err(error) = self.claim(Protocol::Udp, local, &[socket]) {
            self.lanes.iter().for_each(|lane| lane.remove_udp(&bound));
            return Err(error);
        }
        self.udp().push(Arc::clone(&bound));
        Ok(bound)
    }

    /// Undoes [`Net::bind_udp`], before the kernel's socket is closed. The caller holds preemption off.
    pub fn unbind_udp(&self, socket: &Arc<UdpSocket>) {
        self.release(Protocol::Udp, socket.local());
        self.lanes.iter().for_each(|lane| lane.remove_udp(socket));
        self.udp().retain(|other| !Arc::ptr_eq(other, socket));
    }

    /// Returns the UDP sockets that are bound. The caller holds preemption off, or is no worker.
    #[must_use]
    pub fn udp_sockets(&self) -> Vec<Arc<UdpSocket>> {
        self.udp().clone()
    }

    fn udp(&self) -> MutexGuard<'_, Vec<Arc<UdpSocket>>> {
        self.udp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn claim(
        &self,
        protocol: Protocol,
        local: SocketAddr,
        proof: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut made = Vec::new();
        for address in families(local) {
            if let Err(error) = self.steering.claim(protocol, address, proof) {
                made.into_iter().for_each(|address| self.release_one(protocol, address));
                return Err(error);
            }
            made.push(address);
        }
        Ok(())
    }

    pub(crate) fn release(&self, protocol: Protocol, local: SocketAddr) {
        families(local).for_each(|address| self.release_one(protocol, address));
    }

    fn release_one(&self, protocol: Protocol, address: SocketAddr) {
        // A claim that stays ends with its socket: the program looks at that.
        let _ = self.steering.release(protocol, address);
    }
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Returns the addresses to claim for a socket that is bound to `local`: `[::]` also receives IPv4.
fn families(local: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let mapped = match local {
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => Some(([0, 0, 0, 0], local.port()).into()),
        _ => None,
    };
    let own = SocketAddr::new(local.ip().to_canonical(), local.port());
    [Some(own), mapped].into_iter().flatten()
}

fn set_local(steering: &dyn Steering, snapshot: &Snapshot) {
    let addresses: Vec<IpAddr> = snapshot.addresses().iter().map(|own| own.ip).collect();
    // Fails only if the kernel is out of memory; the next change tries again.
    let _ = steering.set_local(&addresses);
}

fn open_lanes(
    options: &Options,
    lanes: u32,
    control: &Arc<Control>,
    steering: &dyn Steering,
) -> Result<Box<[Lane<XskWire>]>, NetError> {
    let queues = steering.queues();
    let interface = control.snapshot().index();
    let copying = match options.mode {
        Mode::Generic => xsk::Copying::Always,
        Mode::Auto | Mode::Native => xsk::Copying::Auto,
    };
    let frames = options.frames.unwrap_or_else(|| frames_for(lanes, queues));
    let sockets = xsk::Options { frames, frame_size: FRAME, copying };
    let mut wires: Vec<Vec<XskWire>> = (0..lanes).map(|_| Vec::new()).collect();
    for queue in 0..queues {
        let opened = open_queue(interface, queue, lanes, &sockets, options.offload)?;
        for (lane, wire) in opened.into_iter().enumerate() {
            steering.put_socket(lane as u32, queue, wire.as_fd()).map_err(NetError::Socket)?;
            wires[lane].push(wire);
        }
    }
    let config = heddle_tcp::Config {
        rto_min: options.rto_min,
        congestion: options.congestion.unwrap_or_default(),
        ..heddle_tcp::Config::default()
    };
    let wires = wires.into_iter().enumerate();
    let lanes = wires.map(|(number, wires)| {
        let stack = Stack::new(config.clone(), secret()?);
        Ok(Lane::new(number, wires, control.clone(), stack))
    });
    lanes.collect::<io::Result<_>>().map_err(NetError::Random)
}

/// Returns the congestion control that the system is set to, if connections of lanes have it.
fn system_congestion() -> Congestion {
    let name = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    name.ok().and_then(|name| Congestion::named(name.trim())).unwrap_or_default()
}

/// Returns what no attacker knows.
fn secret() -> io::Result<Secret> {
    let mut random = [0; 64];
    let mut filled = 0;
    while filled < random.len() {
        filled += rustix::rand::getrandom(&mut random[filled..], GetRandomFlags::empty())?;
    }
    Ok(Secret::new(random))
}

/// Returns how many frames each lane has on each queue, in each direction.
fn frames_for(lanes: u32, queues: u32) -> u32 {
    let sockets = u64::from(lanes.max(1)) * u64::from(queues.max(1));
    let most = FRAME_MEMORY / (sockets * 2 * u64::from(FRAME));
    let most = u32::try_from(most).unwrap_or(u32::MAX).clamp(64, 1024);
    1 << most.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_limited_by_memory() {
        assert_eq!(frames_for(1, 1), 1024);
        assert_eq!(frames_for(16, 4), 1024);
        assert_eq!(frames_for(16, 16), 256);
        assert_eq!(frames_for(64, 64), 64);
    }

    #[test]
    fn a_wildcard_of_ipv6_claims_both_families() {
        let of = |local: &str| {
            families(local.parse().unwrap()).map(|a| a.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("[::]:9"), ["[::]:9", "0.0.0.0:9"]);
        assert_eq!(of("0.0.0.0:9"), ["0.0.0.0:9"]);
        assert_eq!(of("[::ffff:10.0.0.1]:9"), ["10.0.0.1:9"]);
    }
}
