//! Steering for the lanes of the runtime's own network: the program at XDP, which the runtime does not know.

use heddle_netstack::options::{Mode, Options};
use heddle_netstack::steering::{DEPLOYERS, Deployer, Protocol, Steering};
use heddle_steer::hook::xdp;
use heddle_steer::hook::xdp::Interface;
use heddle_steer::lane::{self, Cidr, Deployment};
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// What the runtime finds.
#[linkme::distributed_slice(DEPLOYERS)]
static DEPLOYER: Deployer = deploy;

fn deploy(
    options: &Options,
    lanes: u32,
) -> Result<Box<dyn Steering>, Box<dyn Error + Send + Sync>> {
    let interface = Interface::by_name(&options.interface, None)?;
    let allow =
        options.allow.iter().map(|range| range.parse::<Cidr>()).collect::<Result<_, _>>()?;
    let mode = match options.mode {
        Mode::Auto => None,
        Mode::Native => Some(xdp::Mode::Native),
        Mode::Generic => Some(xdp::Mode::Generic),
    };
    let options = lane::Options { lanes, policy: options.policy.clone(), allow, mode };
    Ok(Box::new(Program(Deployment::attach(interface, &options)?)))
}

struct Program(Deployment);

fn protocol(protocol: Protocol) -> xdp::Protocol {
    match protocol {
        Protocol::Tcp => xdp::Protocol::Tcp,
        Protocol::Udp => xdp::Protocol::Udp,
    }
}

impl Steering for Program {
    fn queues(&self) -> u32 {
        self.0.queues()
    }

    fn mode(&self) -> Mode {
        match self.0.mode() {
            xdp::Mode::Native => Mode::Native,
            xdp::Mode::Generic => Mode::Generic,
        }
    }

    fn put_socket(&self, lane: u32, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.0.put_socket(lane, queue, socket)
    }

    fn claim(
        &self,
        transport: Protocol,
        address: SocketAddr,
        proof: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.0.claim(protocol(transport), address, proof).map_err(io::Error::other)
    }

    fn release(&self, transport: Protocol, address: SocketAddr) -> io::Result<()> {
        self.0.release(protocol(transport), address).map(drop)
    }

    fn add_outgoing(&self, local: SocketAddr, remote: SocketAddr, lane: u32) -> io::Result<()> {
        self.0.add_outgoing(local, remote, lane)
    }

    fn remove_outgoing(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
        self.0.remove_outgoing(local, remote).map(drop)
    }

    fn record_flow(&self, local: SocketAddr, remote: SocketAddr, lane: u32) -> io::Result<()> {
        self.0.record_flow(local, remote, lane)
    }

    fn set_local(&self, addresses: &[IpAddr]) -> io::Result<()> {
        self.0.set_local(addresses)
    }

    fn counts(&self) -> io::Result<Vec<(&'static str, u64)>> {
        let counts = self.0.counts()?;
        Ok(vec![
            ("selected", counts.selected.iter().sum()),
            ("failed", counts.failed.iter().sum()),
            ("passed", counts.passed),
            ("wrong_lane", counts.wrong_lane),
            ("dropped", counts.dropped),
            ("outgoing", counts.outgoing),
            ("errors", counts.errors),
            ("fragments", counts.fragments),
            ("denied", counts.denied),
            ("unproven", counts.unproven),
            ("flows", counts.flows),
            ("flows_full", counts.flows_full),
        ])
    }
}
