//! The hooks at XDP, tried on a veth pair, and the abilities of this machine's interfaces.

use std::error::Error;
use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::time::Duration;

use heddle_bpf::{XdpPrograms, xdp_programs};
use heddle_netns::{FAR4, NEAR, NEAR4, Pair};
use heddle_xsk::{FrameAction, Options, XdpSocket};

use super::{Probe, State};
use crate::hook::xdp::{
    Claim, Executors, Holders, Interface, Mode, Protocol, Root, load_policy, online_cpus,
    probe_offload, put_claim, put_cpu, put_policy, put_socket,
};
use crate::policy::{Maps, read, shipped};

type Trial = Result<String, Box<dyn Error>>;
const PORT: u16 = 8000;
const LIMIT: Duration = Duration::from_millis(500);

pub fn hooks() -> Vec<Probe> {
    let instead = "socket-select works on every interface";
    let net = match Pair::new(1) {
        Ok(net) => net,
        Err(error) => {
            let ids = ["xdp-drv", "xdp-skb", "cpu-redirect"];
            let found = format!("not tried, there is no network to try it on: {error}");
            let unknown = |id: &str| Probe::new(id, State::Unknown, found.as_str(), instead);
            return ids.map(unknown).into();
        }
    };
    vec![
        Probe::tried(
            "xdp-drv",
            sockets(&net, Mode::Native),
            "packets can be steered to AF_XDP sockets in drivers that run programs",
            "use xdp-skb, if that works here",
        ),
        Probe::tried(
            "xdp-skb",
            sockets(&net, Mode::Generic),
            "packets can be steered to AF_XDP sockets on every interface",
            instead,
        ),
        Probe::tried(
            "cpu-redirect",
            cpu(&net),
            "packets can be steered to CPUs in drivers that run programs",
            instead,
        ),
    ]
}

/// Attaches a root in `mode` whose one port is steered by round robin over one executor.
fn steer(net: &Pair, executors: Executors, mode: Mode) -> Result<(Root, Maps), Box<dyn Error>> {
    let interface = Interface::by_name(NEAR, Some(net.near.file()?))?;
    let root = Root::attach(&interface, Some(mode))?;
    let policy = read(shipped("round-robin").unwrap_or_default())?;
    let mut maps = Maps::new();
    let program = load_policy("round-robin", (executors, mode), &policy, &mut maps)?;
    put_policy(&root.maps, 0, &program)?;
    let address = (NEAR4, PORT).into();
    put_claim(&root.maps, &Claim { protocol: Protocol::Udp, address }, 0, Holders::default())?;
    Ok((root, maps))
}

fn send(net: &Pair) -> io::Result<()> {
    let client = net.far.run(|| UdpSocket::bind((FAR4, 0)))?;
    client.send_to(b"probe", (NEAR4, PORT)).map(drop)
}

fn sockets(net: &Pair, mode: Mode) -> Trial {
    let (_root, maps) = steer(net, Executors::Sockets, mode)?;
    let index = Interface::by_name(NEAR, Some(net.near.file()?))?.index();
    let options = Options { frames: 64, ..Options::default() };
    let mut socket = net.near.run(|| XdpSocket::bind(index, 0, &options))?;
    put_socket(&maps, 0, 0, socket.as_fd())?;
    send(net)?;
    socket.wait(LIMIT)?;
    match socket.receive(1, |_| FrameAction::Recycle)? {
        1 => Ok(format!("a packet came at an AF_XDP socket in {mode} mode")),
        _ => Err("a packet was steered to an AF_XDP socket, and did not come".into()),
    }
}

fn cpu(net: &Pair) -> Trial {
    let (_root, maps) = steer(net, Executors::Cpus, Mode::Native)?;
    put_cpu(&maps, 0, online_cpus()?[0], 64)?;
    let server = net.near.run(|| UdpSocket::bind((NEAR4, PORT)))?;
    server.set_read_timeout(Some(LIMIT))?;
    send(net)?;
    match server.recv(&mut [0; 16]) {
        Ok(_) => Ok("a packet went by another CPU's queue to a socket".into()),
        Err(error) => {
            Err(format!("a packet was redirected to a CPU and did not come: {error}").into())
        }
    }
}

/// Returns the abilities of each interface of this machine.
pub fn interfaces() -> Vec<Probe> {
    names().iter().map(|name| interface(name)).collect()
}

/// Returns the names of the interfaces that are asked about.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| {
        // Interfaces that are up, and carry others' packets.
        name != "lo" && read_up(name)
    });
    names.sort();
    names
}

fn read_up(name: &str) -> bool {
    let state = fs::read_to_string(format!("/sys/class/net/{name}/operstate")).unwrap_or_default();
    matches!(state.trim(), "up" | "unknown")
}

fn interface(name: &str) -> Probe {
    let id = format!("xdp-{name}");
    let asked = Interface::by_name(name, None)
        .and_then(|interface| Ok((xdp_programs(interface.index())?, interface)));
    let (there, interface) = match asked {
        Ok(asked) => asked,
        Err(error) => {
            let follows = "socket-select works on every interface";
            return Probe::new(id, State::Unknown, format!("cannot be asked: {error}"), follows);
        }
    };
    let offload = match probe_offload(&interface) {
        Ok(()) => "; its card runs programs",
        Err(_) => "; its card runs none (no xdp-offload)",
    };
    let (state, can, follows) = abilities(there.features);
    let found = format!("driver {}: {can}{offload}", driver(name));
    match there.native.or(there.generic) {
        Some(program) => Probe::new(
            id,
            State::Partly,
            format!("{found}; program {program} is on it"),
            "an interface takes one program: unless it is Heddle's, packets cannot be steered there",
        ),
        None => Probe::new(id, state, found, follows),
    }
}

fn abilities(features: u64) -> (State, &'static str, &'static str) {
    let has = |bit| features & bit != 0;
    if has(XdpPrograms::REDIRECT) && has(XdpPrograms::ZERO_COPY) {
        let can = "programs, redirects, AF_XDP without copies";
        return (State::Yes, can, "xdp-drv and cpu-redirect work, at the card's speed");
    }
    if has(XdpPrograms::REDIRECT) {
        let can = "programs, redirects";
        return (State::Yes, can, "xdp-drv (with a copy) and cpu-redirect work");
    }
    if has(XdpPrograms::NATIVE) {
        return (State::Partly, "programs without redirects", "only xdp-skb works");
    }
    let can = "no programs in the driver, as far as it says";
    (State::Partly, can, "xdp-skb works; cpu-redirect does not, socket-select does")
}

fn driver(name: &str) -> String {
    let link = fs::read_link(format!("/sys/class/net/{name}/device/driver"));
    let file = link.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    file.unwrap_or_else(|| "unknown".into())
}
