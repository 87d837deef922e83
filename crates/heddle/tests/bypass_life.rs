//! What happens around a server under lanes: interfaces, addresses, neighbours, ends of processes. Skipped without
//! root.

mod common;

use common::scenarios::{self, connect, pattern};
use common::server::{ECHO, SINK};
use common::{Server, pair};
use heddle_netns::{FAR, FAR4, FAR6, NEAR, NEAR4, NEAR6, Namespace, Pair};
use heddle_test_support::until;
use rustix::process::Signal;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpStream};
use std::process::Command;

#[test]
#[ignore = "the server of the other tests"]
fn serve() {
    common::server::serve();
}

/// Returns what `ip` prints in a namespace.
fn ip(namespace: &Namespace, words: &str) -> String {
    let mut command = Command::new("ip");
    common::output(command.args(["-n", namespace.name()]).args(words.split(' ')))
}

fn has_program(net: &Pair) -> bool {
    ip(&net.near, "-d link show hd0").contains("xdp")
}

/// A connection whose content is checked as it goes on.
struct Transfer(TcpStream);

impl Transfer {
    fn start(net: &Pair, server: impl Into<IpAddr> + Send) -> Transfer {
        let mut transfer = Transfer(net.far.run(|| connect(server.into(), ECHO)));
        transfer.goes_on();
        transfer
    }

    #[track_caller]
    fn goes_on(&mut self) {
        scenarios::both_ways(Ok(&self.0), &pattern(200_000));
    }
}

#[test]
fn connections_survive_an_interface_that_was_down() {
    let Some(net) = pair() else { return };
    let _server = Server::start(&net.near, "");
    for (end, interface) in [(&net.far, FAR), (&net.near, NEAR)] {
        let mut transfer = Transfer::start(&net, NEAR4);
        end.ip(&format!("link set {interface} down")).unwrap();
        // What is sent now is lost.
        let text = pattern(100_000);
        let mut sender = transfer.0.try_clone().unwrap();
        let sent = text.clone();
        let sends = std::thread::spawn(move || sender.write_all(&sent).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(300));
        end.ip(&format!("link set {interface} up")).unwrap();
        restore(&net);
        let mut back = vec![0; text.len()];
        transfer.0.read_exact(&mut back).unwrap();
        assert!(back == text);
        sends.join().unwrap();
        transfer.goes_on();
        Transfer::start(&net, NEAR4).goes_on();
    }
}

/// What the interface may carry becomes less while data is under way, and more again.
#[test]
fn a_smaller_mtu_is_obeyed_by_connections_that_are_open() {
    let Some(net) = pair() else { return };
    // Several timeouts in a row find out what the path carries.
    let mut server = Server::start(&net.near, ",rto-min=10ms");
    for server in [IpAddr::from(NEAR4), NEAR6.into()] {
        let mut transfer = Transfer::start(&net, server);
        for mtu in [1_300, 1_500] {
            net.near.ip(&format!("link set {NEAR} mtu {mtu}")).unwrap();
            net.far.ip(&format!("link set {FAR} mtu {mtu}")).unwrap();
            transfer.goes_on();
            Transfer::start(&net, server).goes_on();
        }
    }
    assert_eq!(server.order("counters")["lost_invalid"], 0);
}

/// As the kernel's do: a connection survives if its address comes back in time.
#[test]
fn connections_survive_an_address_that_was_gone() {
    let Some(net) = pair() else { return };
    let _server = Server::start(&net.near, "");
    let mut transfer = Transfer::start(&net, NEAR4);
    net.near.ip(&format!("addr del {NEAR4}/24 dev {NEAR}")).unwrap();
    let text = pattern(50_000);
    transfer.0.write_all(&text).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    net.near.ip(&format!("addr add {NEAR4}/24 dev {NEAR}")).unwrap();
    let mut back = vec![0; text.len()];
    transfer.0.read_exact(&mut back).unwrap();
    assert!(back == text);
    Transfer::start(&net, NEAR4).goes_on();
}

/// Gives back what vanishes with an interface that goes down.
fn restore(net: &Pair) {
    let ends = [
        (&net.near, NEAR, NEAR6, "02:00:00:00:00:02", FAR4),
        (&net.far, FAR, FAR6, "02:00:00:00:00:01", NEAR4),
    ];
    for (end, interface, own, mac, other) in ends {
        end.ip(&format!("neigh replace {other} lladdr {mac} dev {interface} nud permanent"))
            .unwrap();
        end.ip(&format!("-6 addr replace {own}/64 dev {interface} nodad")).unwrap();
    }
}

#[test]
fn a_neighbour_with_a_new_ethernet_address_is_followed() {
    let Some(net) = pair() else { return };
    let _server = Server::start(&net.near, "");
    net.near.ip(&format!("neigh del {FAR4} dev {NEAR}")).unwrap();
    let mut transfer = Transfer::start(&net, NEAR4);
    // As most systems are set up that take an address over: they announce it.
    net.far.set("ipv4/conf/all/arp_notify", "1").unwrap();
    net.far.set("ipv4/conf/hd1/arp_notify", "1").unwrap();
    net.far.ip(&format!("link set {FAR} address 02:00:00:00:00:22")).unwrap();
    transfer.goes_on();
    assert!(ip(&net.near, "neigh show").contains("02:00:00:00:00:22"));
}

/// The neighbour is heard of by the kernel's own questions, which it repeats for lanes.
#[test]
fn a_neighbour_that_changes_silently_is_followed() {
    let Some(net) = pair() else { return };
    // How long the kernel trusts an answer, and how often it asks again: half a minute and five seconds usually.
    for family in ["ipv4", "ipv6"] {
        net.near.set(&format!("{family}/neigh/{NEAR}/base_reachable_time_ms"), "500").unwrap();
        net.near.set(&format!("{family}/neigh/{NEAR}/interval_probe_time_ms"), "500").unwrap();
        net.near.set(&format!("{family}/neigh/{NEAR}/delay_first_probe_time"), "1").unwrap();
    }
    let _server = Server::start(&net.near, "");
    for other in [IpAddr::from(FAR4), FAR6.into()] {
        net.near.ip(&format!("neigh del {other} dev {NEAR}")).unwrap();
    }
    let mut transfers = [Transfer::start(&net, NEAR4), Transfer::start(&net, NEAR6)];
    for last in ["33", "44"] {
        net.far.ip(&format!("link set {FAR} address 02:00:00:00:00:{last}")).unwrap();
        transfers.iter_mut().for_each(Transfer::goes_on);
    }
}

/// The server notices at the latest when it uses the interface; it serves by others, and rests.
#[test]
fn a_server_outlives_its_interface() {
    let Some(net) = pair() else { return };
    let mut server = Server::start(&net.near, "");
    let transfer = Transfer::start(&net, NEAR4);
    net.near.ip(&format!("link del {NEAR}")).unwrap();
    drop(transfer);
    net.near.run(|| scenarios::requests(Ipv4Addr::LOCALHOST.into(), 100));
    assert!(server.order("counters")["passive_opens"] >= 1);
    assert!(!server.process.has_ended());
}

#[test]
fn a_wildcard_serves_an_address_that_is_added_later() {
    let Some(net) = pair() else { return };
    let mut server = Server::start(&net.near, "");
    net.near.ip(&format!("addr add 10.77.0.7/24 dev {NEAR}")).unwrap();
    net.near.ip(&format!("addr add fd77::7/64 dev {NEAR} nodad")).unwrap();
    // The program at XDP hears of it a moment later; until then the kernel's socket serves.
    for address in ["10.77.0.7", "fd77::7"] {
        let address: IpAddr = address.parse().unwrap();
        let before = server.order("counters")["passive_opens"];
        until("connections by lanes", || {
            net.far.run(|| scenarios::requests(address, 10));
            server.order("counters")["passive_opens"] > before
        });
    }
}

#[test]
fn a_killed_server_leaves_the_port_to_the_kernel_and_the_next_one() {
    let Some(net) = pair() else { return };
    net.near.ip(&format!("neigh del {FAR4} dev {NEAR}")).unwrap();
    for signal in [Signal::KILL, Signal::TERM] {
        let mut server = Server::start(&net.near, "");
        let mut transfer = Transfer::start(&net, NEAR4);
        assert!(has_program(&net));
        server.process.signal(signal);
        server.process.wait();
        until("an interface without a program", || !has_program(&net));
        // The kernel knows no such connection. A late acknowledgement may have brought its reset already.
        let written = transfer.0.write_all(b"still there?");
        let reset = written.and_then(|()| transfer.0.read(&mut [0; 8])).unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        let refused = net.far.run(|| TcpStream::connect((NEAR4, ECHO))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        drop(net.near.run(|| std::net::TcpListener::bind((NEAR4, ECHO)).unwrap()));
        // Entries that lanes asked for are all that stays, marked as theirs; `docs/design/netstack.md` says so.
        let left = ip(&net.near, "neigh show");
        let harmless = ["PERMANENT", "proto 72", "REACHABLE", "STALE", "DELAY"];
        let is_harmless = |line: &str| harmless.iter().any(|word| line.contains(word));
        assert!(left.lines().all(is_harmless), "{left}");
    }
    // The killed ones do no harm to the next.
    let _server = Server::start(&net.near, "");
    Transfer::start(&net, NEAR4).goes_on();
}

#[test]
fn a_child_of_a_fork_leaves_its_parents_sockets_alone() {
    let Some(net) = pair() else { return };
    let mut server = Server::start(&net.near, "");
    let mut transfer = Transfer::start(&net, NEAR4);
    let port = server.order("fork")["port"] as u16;
    transfer.goes_on();
    let before = server.order("counters")["passive_opens"];
    let client = net.far.run(|| connect(NEAR4.into(), port));
    scenarios::both_ways(Ok(client), &pattern(10_000));
    assert_eq!(server.order("counters")["passive_opens"], before + 1, "the claim is still there");
}

/// A connection that waits for an answer while its server is stopped and goes on.
#[test]
fn a_server_that_was_stopped_goes_on() {
    let Some(net) = pair() else { return };
    let server = Server::start(&net.near, "");
    let mut client = net.far.run(|| connect(NEAR4.into(), SINK));
    server.process.signal(Signal::STOP);
    let text = pattern(3 << 20);
    let mut sender = client.try_clone().unwrap();
    let sent = text.clone();
    let sends = std::thread::spawn(move || {
        sender.write_all(&sent).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    std::thread::sleep(std::time::Duration::from_millis(500));
    server.process.signal(Signal::CONT);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    sends.join().unwrap();
    assert_eq!(answer, scenarios::summary(&text));
}
