//! Preemption: on one worker, short requests are answered while long ones run. Checked by the order of the
//! answers, not by time.

use heddle_proto::udp::{Key, Op, Request, Response};
use heddle_server::{Dataset, Options, Server};
use heddle_store::StoreConfig;

use crate::datagrams::{client, request};
#[cfg(feature = "rocksdb")]
use crate::harness::temp_dir;
use crate::harness::{Client, heddle};

const KEYS: u64 = 200_000;
/// The work that occupies the one worker when the GET arrives.
const SCANS: u64 = 12;

fn with_server(store: StoreConfig, test: impl Fn(&Server)) {
    let dataset = Some(Dataset { keys: KEYS, value_size: 10 });
    let server =
        Server::start(&Options { system: heddle(), store, dataset, ..Options::on_free_ports() });
    let server = server.unwrap();
    test(&server);
    server.stop().request();
    server.wait().unwrap();
}

/// One socket for all, so that answers come in the order in which the server sent them.
fn a_get_overtakes_scans(server: &Server) {
    let socket = client(server);
    let mut wire = Vec::new();
    for id in 0..SCANS {
        let scan = Request { count: KEYS as u32, ..request(Op::Scan, id, Key::Id(0)) };
        wire.clear();
        scan.encode(&mut wire);
        socket.send(&wire).unwrap();
    }
    wire.clear();
    request(Op::Get, SCANS, Key::Id(7)).encode(&mut wire);
    socket.send(&wire).unwrap();
    let ids: Vec<u64> = (0..=SCANS)
        .map(|_| {
            let mut answer = [0; 100];
            let len = socket.recv(&mut answer).unwrap();
            Response::decode(&answer[..len]).unwrap().id
        })
        .collect();
    assert_eq!(ids[0], SCANS, "the GET is answered first: {ids:?}");
    assert!(counter(server, "preemptions") >= SCANS);
}

fn counter(server: &Server, name: &str) -> u64 {
    let mut client = Client::to(server);
    client.send(b"INFO\r\n");
    let wanted = format!("{name}:");
    let value = (0..100).find_map(|_| client.line().strip_prefix(&wanted)?.parse().ok());
    value.unwrap_or_else(|| panic!("INFO has {name}"))
}

#[test]
fn a_get_overtakes_scans_in_memory() {
    with_server(StoreConfig::Memory, a_get_overtakes_scans);
}

#[cfg(feature = "rocksdb")]
#[test]
fn a_get_overtakes_scans_on_rocksdb() {
    let dir = temp_dir();
    with_server(
        StoreConfig::RocksDb { dir: dir.path().into(), sync: false },
        a_get_overtakes_scans,
    );
}
