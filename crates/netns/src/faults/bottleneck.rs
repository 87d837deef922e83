//! A router whose links are slower than those of the ends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::pair::{TO_FAR, TO_NEAR};
use crate::{FAR, FAR_MAC, FAR4, FAR6, NEAR, NEAR_MAC, NEAR4, NEAR6, Namespace, Pair};

const ROUTER4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);
const ROUTER6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfe);
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
/// What may leave at once, in bytes: a few frames.
const BURST: u32 = 16 * 1024;

/// The router's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BottleneckOptions {
    /// Bits a second, each way.
    pub rate: u64,
    /// Bytes that wait before each link; more are lost.
    pub queue: u32,
    /// The longest packet that the router sends to the far end, in bytes. The sender of a longer packet gets an ICMP
    /// error.
    pub mtu: u32,
}

impl Default for BottleneckOptions {
    /// Returns 100 Mbit/s, with a queue of 64 KiB and the usual MTU.
    fn default() -> Self {
        Self { rate: 100_000_000, queue: 64 * 1024, mtu: 1500 }
    }
}

/// A pair of namespaces with a router between them. Their addresses are the usual ones; each reaches the other by the
/// router only.
#[derive(Debug)]
pub struct Bottleneck {
    /// The ends.
    pub net: Pair,
    /// The router.
    pub router: Namespace,
}

impl Bottleneck {
    /// Creates the namespaces, with interfaces of `queues` queues.
    ///
    /// # Errors
    /// The message of `ip`, `tc` or `ethtool`; usually a lack of privilege, or a kernel without tbf.
    pub fn new(queues: u32, options: BottleneckOptions) -> io::Result<Self> {
        let router = Namespace::new()?;
        let net = Pair::through(&router, queues)?;
        router.set("ipv4/ip_forward", "1")?;
        router.set("ipv6/conf/all/forwarding", "1")?;
        let near = (NEAR, NEAR_MAC, [NEAR4.into(), NEAR6.into()]);
        let far = (FAR, FAR_MAC, [FAR4.into(), FAR6.into()]);
        attach(&router, TO_NEAR, &net.near, near, far.2)?;
        attach(&router, TO_FAR, &net.far, far, near.2)?;
        // A veth pair drops what is longer than the receiver's MTU: the limit is the route's, and holds one way.
        let BottleneckOptions { rate, queue, mtu } = options;
        for destination in [IpAddr::from(FAR4), FAR6.into()] {
            router.ip(&format!("route replace {destination} dev {TO_FAR} mtu {mtu}"))?;
        }
        for interface in [TO_NEAR, TO_FAR] {
            router.tc(&format!(
                "qdisc add dev {interface} root tbf rate {rate}bit burst {BURST} limit {queue}"
            ))?;
        }
        Ok(Self { net, router })
    }
}

/// Makes the router reach an end by `interface`, and the end reach the addresses of the other one by the router.
fn attach(
    router: &Namespace,
    interface: &str,
    end: &Namespace,
    (device, mac, own): (&str, [u8; 6], [IpAddr; 2]),
    other: [IpAddr; 2],
) -> io::Result<()> {
    let text = ROUTER_MAC.map(|byte| format!("{byte:02x}")).join(":");
    router.ip(&format!("link set {interface} address {text}"))?;
    router.ip(&format!("addr add {ROUTER4}/32 dev {interface}"))?;
    router.ip(&format!("addr add {ROUTER6}/64 dev {interface} nodad"))?;
    let gateways = [IpAddr::from(ROUTER4), ROUTER6.into()];
    for ((own, other), gateway) in own.into_iter().zip(other).zip(gateways) {
        router.ip(&format!("route add {own} dev {interface}"))?;
        end.ip(&format!("route add {other} via {gateway} dev {device} onlink"))?;
    }
    router.add_neighbour(interface, mac, (own[0], own[1]))?;
    end.add_neighbour(device, ROUTER_MAC, (gateways[0], gateways[1]))
}
