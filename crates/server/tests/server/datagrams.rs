//! The load generator's datagrams.

use std::net::UdpSocket;
use std::time::Duration;

use heddle_core::Ns;
use heddle_proto::udp::{Key, Op, Request, Response, Status, digest, id_key};
use heddle_server::{Dataset, Limit, Options, Server};

use crate::harness::on_each_with;

const DATA: Dataset = Dataset { keys: 100, value_size: 10 };

fn with_data(options: &mut Options) {
    options.dataset = Some(DATA);
}

pub(crate) fn client(server: &Server) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket.connect(server.udp().unwrap()).unwrap();
    socket
}

pub(crate) fn request(op: Op, id: u64, key: Key<'_>) -> Request<'_> {
    Request { op, id, sent: Ns(id * 1000), key, count: 0, value: &[] }
}

fn ask(socket: &UdpSocket, request: &Request<'_>) -> Response {
    let (mut wire, mut answer) = (Vec::new(), [0; 100]);
    request.encode(&mut wire);
    socket.send(&wire).unwrap();
    let len = socket.recv(&mut answer).unwrap();
    let response = Response::decode(&answer[..len]).unwrap();
    assert_eq!((response.op, response.id, response.sent), (request.op, request.id, request.sent));
    response
}

#[test]
fn what_a_full_store_has_no_room_for_is_refused() {
    on_each_with(
        |options| options.clients.store_memory = 1000,
        |server| {
            let (socket, value) = (client(server), vec![0; 1000]);
            let put = Request { value: &value, ..request(Op::Put, 1, Key::Id(0)) };
            let is_bounded = server.ready_line().contains("store=memory");
            let expected = if is_bounded { Status::Refused } else { Status::Ok };
            assert_eq!(ask(&socket, &put).status, expected);
            assert_eq!(server.hits(Limit::StoreMemory), u64::from(is_bounded));
        },
    );
}

#[test]
fn each_operation_is_answered() {
    on_each_with(with_data, |server| {
        let socket = client(server);
        assert_eq!(ask(&socket, &request(Op::Ping, 1, Key::Id(0))).status, Status::Ok);
        let get = ask(&socket, &request(Op::Get, 2, Key::Id(99)));
        assert_eq!((get.status, get.count, get.bytes), (Status::Ok, 1, 10));
        let missing = ask(&socket, &request(Op::Get, 3, Key::Id(100)));
        assert_eq!((missing.status, missing.count), (Status::NotFound, 0));
        let key = id_key(100);
        let put = Request { value: b"new", ..request(Op::Put, 4, Key::Bytes(&key)) };
        assert_eq!(ask(&socket, &put).status, Status::Ok);
        let get = ask(&socket, &request(Op::Get, 5, Key::Id(100)));
        assert_eq!((get.bytes, get.digest), (3, digest(0, b"new")));
        let scan = Request { count: 50, ..request(Op::Scan, 6, Key::Id(71)) };
        let scan = ask(&socket, &scan);
        assert_eq!((scan.status, scan.count, scan.bytes), (Status::Ok, 30, 293));
        assert!(scan.service > Ns::ZERO);
    });
}

#[test]
fn what_is_no_request_is_dropped_and_what_is_too_long_refused() {
    on_each_with(with_data, |server| {
        let socket = client(server);
        for junk in [&b""[..], b"junk", &[0xff; 64]] {
            socket.send(junk).unwrap();
        }
        // Only the answer to the request comes back.
        let long = [b'k'; 5000];
        let refused = ask(&socket, &request(Op::Get, 1, Key::Bytes(&long)));
        assert_eq!(refused.status, Status::Refused);
        let endless = Request { count: u32::MAX, ..request(Op::Scan, 2, Key::Id(0)) };
        assert_eq!(ask(&socket, &endless).status, Status::Refused);
    });
}
