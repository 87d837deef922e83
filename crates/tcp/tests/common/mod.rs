//! What the tests share. Each test uses a part of it.
#![allow(dead_code)]

pub mod apps;
pub mod link;
pub mod peer;

use heddle_core::Ns;
use heddle_tcp::{Config, ConnectionId, ListenerId};
use link::{Net, Path};

/// The port that servers listen on.
pub const PORT: u16 = 80;

/// A client (host 0) and a server (host 1) with an established connection.
pub struct Pair {
    pub net: Net,
    pub listener: ListenerId,
    pub client: ConnectionId,
    pub server: ConnectionId,
}

/// Connects two hosts over `path`; faults begin afterwards.
pub fn pair(config: Config, path: Path, seed: u64) -> Pair {
    pair_of([config.clone(), config], path, seed)
}

/// The same with two configurations.
pub fn pair_of(configs: [Config; 2], path: Path, seed: u64) -> Pair {
    let quiet = Path { faults: Default::default(), ..path };
    let mut net = Net::new(configs, quiet, seed);
    let listener = listen(&mut net);
    let client = connect(&mut net, 40_000);
    net.pass(quiet.delay * 4 + Ns::from_us(20));
    let server = net.on(1, |stack, now, _| stack.accept(listener, now)).expect("a connection");
    net.hosts.iter_mut().for_each(|host| host.path = path);
    Pair { net, listener, client, server }
}

/// Has host 1 listen.
pub fn listen(net: &mut Net) -> ListenerId {
    let address = net.hosts[1].at(PORT);
    net.on(1, |stack, _, _| stack.listen(address, 1 << 16)).expect("a listener")
}

/// Has host 0 connect from `port`.
pub fn connect(net: &mut Net, port: u16) -> ConnectionId {
    let (local, remote, mtu) = (net.hosts[0].at(port), net.hosts[1].at(PORT), net.mtu);
    net.on(0, |stack, now, out| stack.connect(now, local, remote, mtu, out)).expect("a connection")
}
