//! The runtime's own network, with the kernel at the other end of a pair of interfaces. Skipped without root.

use heddle::Runtime;
use heddle::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use heddle::netstack::lane::Counters;
use heddle_netns::{FAR4, FAR6, NEAR, NEAR4, NEAR6, Pair};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

/// Each runtime has two workers.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `test` with a runtime whose lanes serve the near end, which the far end reaches.
fn with_lanes(options: &str, test: impl FnOnce(&Runtime, &Pair)) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let pair = match Pair::new(2) {
        Ok(pair) => pair,
        Err(error) => return eprintln!("skipped: no network namespaces ({error})"),
    };
    let network = format!("xdp:{NEAR}{options}").parse().unwrap();
    let build = || Runtime::builder().net(network).workers(2).build();
    let runtime = pair.near.run(build).unwrap();
    test(&runtime, &pair);
}

/// A socket of the kernel at the far end, connected to `server`.
fn client(pair: &Pair, server: SocketAddr) -> std::net::UdpSocket {
    let local: IpAddr = if server.is_ipv4() { FAR4.into() } else { FAR6.into() };
    let socket = pair.far.run(|| std::net::UdpSocket::bind((local, 0))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.connect(server).unwrap();
    socket
}

fn ask(client: &std::net::UdpSocket, text: &[u8]) -> Vec<u8> {
    client.send(text).unwrap();
    let mut buf = [0; 65_536];
    let length = client.recv(&mut buf).unwrap();
    buf[..length].to_vec()
}

fn echo(socket: &UdpSocket, times: usize) {
    let mut buf = [0; 65_536];
    for _ in 0..times {
        let (length, peer) = socket.recv_from(&mut buf).unwrap();
        socket.send_to(&buf[..length], peer).unwrap();
    }
}

#[test]
fn datagrams_are_served_by_lanes_over_both_families() {
    with_lanes("", |runtime, pair| {
        for ip in [IpAddr::from(NEAR4), IpAddr::from(NEAR6)] {
            let bind: SocketAddr =
                if ip.is_ipv4() { ([0, 0, 0, 0], 9000).into() } else { ([0; 8], 9001).into() };
            let socket = runtime.run(|| UdpSocket::bind(bind)).unwrap();
            let server = runtime.spawn(move || echo(&socket, 100));
            let client = client(pair, (ip, bind.port()).into());
            for round in 0..100_u8 {
                assert_eq!(ask(&client, &[round; 64]), [round; 64]);
            }
            server.join().unwrap();
        }
        assert_eq!(count(runtime, |packets| packets.udp_received), 200);
        assert_eq!(count(runtime, |packets| packets.udp_sent), 200);
    });
}

/// Returns the sum of a count over all lanes.
fn count(runtime: &Runtime, of: impl Fn(&Counters) -> u64) -> u64 {
    let lanes = runtime.network().unwrap().lanes();
    lanes.iter().map(|lane| of(&lane.counters().packets)).sum()
}

/// The kernel takes fragments apart and together, on both ways; the socket of lanes gets and sends them.
#[test]
fn datagrams_longer_than_the_mtu_go_through_the_kernel() {
    with_lanes("", |runtime, pair| {
        let socket = runtime.run(|| UdpSocket::bind("0.0.0.0:9000")).unwrap();
        let server = runtime.spawn(move || echo(&socket, 4));
        let client = client(pair, (NEAR4, 9000).into());
        for length in [1472, 1473, 9000, 60_000] {
            let text: Vec<u8> = (0..length).map(|at| at as u8).collect();
            assert!(ask(&client, &text) == text, "{length} bytes");
        }
        server.join().unwrap();
        assert_eq!(count(runtime, |packets| packets.udp_received), 1);
        assert_eq!(count(runtime, |packets| packets.udp_by_kernel), 3);
    });
}

#[test]
fn a_client_of_lanes_is_served_by_the_kernel() {
    with_lanes("", |runtime, pair| {
        let server = pair.far.run(|| std::net::UdpSocket::bind((FAR4, 9000))).unwrap();
        let asked = runtime.spawn(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((FAR4, 9000)).unwrap();
            assert_eq!(socket.local_addr().unwrap().ip(), NEAR4, "the route's choice");
            assert_eq!(socket.peer_addr().unwrap(), (FAR4, 9000).into());
            socket.send(b"question").unwrap();
            let mut buf = [0; 16];
            let length = socket.recv(&mut buf).unwrap();
            assert_eq!(&buf[..length], b"answer");
            // Nothing listens there, which the kernel at the other end says.
            socket.connect((FAR4, 9001)).unwrap();
            socket.send(b"nobody").unwrap();
            assert_eq!(socket.recv(&mut buf).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        });
        let mut buf = [0; 16];
        let (length, peer) = server.recv_from(&mut buf).unwrap();
        assert_eq!((&buf[..length], peer.ip()), (&b"question"[..], NEAR4.into()));
        server.send_to(b"answer", peer).unwrap();
        asked.join().unwrap();
        assert_eq!(count(runtime, |packets| packets.udp_by_kernel), 0);
    });
}

/// What does not arrive at the interface is the kernel's, and so are sockets of other addresses.
#[test]
fn loopback_and_other_addresses_are_the_kernels() {
    with_lanes("", |runtime, pair| {
        pair.near.ip("link set lo up").unwrap();
        runtime.run(|| {
            let wildcard = UdpSocket::bind("0.0.0.0:9000").unwrap();
            let local = UdpSocket::bind("127.0.0.1:0").unwrap();
            local.send_to(b"here", "127.0.0.1:9000").unwrap();
            let mut buf = [0; 16];
            let (length, peer) = wildcard.recv_from(&mut buf).unwrap();
            assert_eq!((&buf[..length], peer), (&b"here"[..], local.local_addr().unwrap()));
            wildcard.send_to(b"back", peer).unwrap();
            assert_eq!(local.recv_from(&mut buf).unwrap(), (4, ([127, 0, 0, 1], 9000).into()));
            let taken = UdpSocket::bind("0.0.0.0:9000").unwrap_err();
            assert_eq!(taken.kind(), ErrorKind::AddrInUse);
            wildcard.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            assert_eq!(wildcard.recv_from(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        });
        assert_eq!(count(runtime, |packets| packets.udp_received), 0);
    });
}

#[test]
fn handles_of_a_socket_share_what_arrives() {
    with_lanes("", |runtime, pair| {
        let socket = runtime.run(|| UdpSocket::bind("0.0.0.0:9000")).unwrap();
        let other = runtime.run(|| socket.try_clone()).unwrap();
        let servers = [socket, other].map(|socket| runtime.spawn(move || echo(&socket, 1)));
        for client in [client(pair, (NEAR4, 9000).into()), client(pair, (NEAR4, 9000).into())] {
            assert_eq!(ask(&client, b"one each"), b"one each");
        }
        servers.into_iter().for_each(|server| server.join().unwrap());
        // The port is free once both are gone.
        runtime.run(|| UdpSocket::bind("0.0.0.0:9000")).unwrap();
    });
}

/// A connection of the kernel at the far end.
fn connect(pair: &Pair, server: SocketAddr) -> std::net::TcpStream {
    let stream = pair.far.run(|| std::net::TcpStream::connect(server)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Bytes that are different wherever they are cut.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn serve_echo(runtime: &Runtime, addr: &str) -> SocketAddr {
    let listener = runtime.run(|| TcpListener::bind(addr)).unwrap();
    let local = listener.local_addr().unwrap();
    runtime.spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            heddle::spawn(move || {
                let _ = std::io::copy(&mut &stream, &mut &stream);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    local
}

#[test]
fn connections_are_served_by_lanes_over_both_families() {
    with_lanes("", |runtime, pair| {
        let port = serve_echo(runtime, "[::]:0").port();
        for ip in [IpAddr::from(NEAR4), IpAddr::from(NEAR6)] {
            for round in 0..20 {
                let mut client = connect(pair, (ip, port).into());
                let question = pattern(1 + round * 777);
                client.write_all(&question).unwrap();
                let mut answer = vec![0; question.len()];
                client.read_exact(&mut answer).unwrap();
                assert!(answer == question, "round {round} to {ip}");
                client.shutdown(Shutdown::Write).unwrap();
                assert_eq!(client.read(&mut answer).unwrap(), 0, "the end, round {round}");
            }
        }
        assert_eq!(tcp(runtime, |tcp| tcp.passive_opens), 40);
    });
}

fn tcp(runtime: &Runtime, of: impl Fn(&heddle::netstack::TcpCounters) -> u64) -> u64 {
    let lanes = runtime.network().unwrap().lanes();
    lanes.iter().map(|lane| of(&lane.counters().tcp)).sum()
}

#[test]
fn megabytes_go_both_ways_at_the_same_time() {
    with_lanes("", |runtime, pair| {
        let server = serve_echo(runtime, "0.0.0.0:9000");
        let mut client = connect(pair, (NEAR4, server.port()).into());
        let mut sender = client.try_clone().unwrap();
        let text = pattern(20 << 20);
        let sent = text.clone();
        let sends = std::thread::spawn(move || {
            sender.write_all(&sent).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        sends.join().unwrap();
        assert!(received == text);
    });
}

#[test]
fn a_lane_connects_to_the_kernel() {
    with_lanes("", |runtime, pair| {
        let listener = pair.far.run(|| std::net::TcpListener::bind((FAR4, 9000))).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, peer) = listener.accept().unwrap();
            let mut text = Vec::new();
            stream.read_to_end(&mut text).unwrap();
            stream.write_all(&text).unwrap();
            (peer, text.len())
        });
        let text = pattern(3 << 20);
        let length = text.len();
        let local = runtime.run(move || {
            let mut stream = TcpStream::connect((FAR4, 9000)).unwrap();
            assert!(stream.kernel_fd().is_none(), "a lane's");
            let local = stream.local_addr().unwrap();
            assert_eq!(
                (local.ip(), stream.peer_addr().unwrap()),
                (NEAR4.into(), (FAR4, 9000).into())
            );
            stream.write_all(&text).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert!(back == text);
            local
        });
        assert_eq!(server.join().unwrap(), (local, length));
        let refused = runtime.run(|| TcpStream::connect((FAR4, 9001)).unwrap_err());
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let late = Duration::from_millis(50);
        let silent = runtime
            .run(|| TcpStream::connect_timeout(&([10, 77, 0, 99], 1).into(), late).unwrap_err());
        assert_eq!(silent.kind(), ErrorKind::TimedOut);
    });
}

/// Ends of connections, as each end sees the other's.
#[test]
fn a_reset_is_no_end() {
    with_lanes("", |runtime, pair| {
        let listener = runtime.run(|| TcpListener::bind("0.0.0.0:9000")).unwrap();
        let accept = || runtime.run(|| listener.accept()).unwrap().0;
        let mut buf = [0; 16];

        let client = connect(pair, (NEAR4, 9000).into());
        let mut server = accept();
        drop(client);
        assert_eq!(runtime.run(|| server.read(&mut buf)).unwrap(), 0);

        let client = connect(pair, (NEAR4, 9000).into());
        let mut server = accept();
        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        let reset = runtime.run(|| server.read(&mut buf)).unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);

        let mut client = connect(pair, (NEAR4, 9000).into());
        let server = accept();
        server.set_zero_linger().unwrap();
        runtime.run(|| drop(server));
        assert_eq!(client.read(&mut buf).unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

/// The kernel's socket accepts what does not come by way of the interface, at the same listener.
#[test]
fn a_listener_accepts_from_loopback_too() {
    with_lanes("", |runtime, pair| {
        pair.near.ip("link set lo up").unwrap();
        let server = serve_echo(runtime, "0.0.0.0:9000");
        let local = pair.near.run(|| std::net::TcpStream::connect(("127.0.0.1", server.port())));
        for mut client in [local.unwrap(), connect(pair, (NEAR4, server.port()).into())] {
            client.write_all(b"to and fro").unwrap();
            let mut buf = [0; 10];
            client.read_exact(&mut buf).unwrap();
            assert_eq!(&buf, b"to and fro");
        }
        assert_eq!(tcp(runtime, |tcp| tcp.passive_opens), 1);
    });
}

/// A policy of the steering layer places connections, and their segments follow.
#[test]
fn a_policy_chooses_the_lanes_of_connections() {
    with_lanes(",policy=round-robin", |runtime, pair| {
        let server = serve_echo(runtime, "0.0.0.0:9000");
        let mut clients: Vec<_> =
            (0..8).map(|_| connect(pair, (NEAR4, server.port()).into())).collect();
        for (round, client) in (0..4).flat_map(|round| (0..8).map(move |client| (round, client))) {
            let text = [round as u8; 100];
            clients[client].write_all(&text).unwrap();
            let mut back = [0; 100];
            clients[client].read_exact(&mut back).unwrap();
            assert_eq!(back, text);
        }
        let lanes = runtime.network().unwrap().lanes();
        let opened: Vec<u64> = lanes.iter().map(|lane| lane.counters().tcp.passive_opens).collect();
        assert_eq!(opened, [4, 4]);
    });
}

#[test]
fn connections_outlive_their_listener() {
    with_lanes("", |runtime, pair| {
        let listener = runtime.run(|| TcpListener::bind("0.0.0.0:9000")).unwrap();
        let mut client = connect(pair, (NEAR4, 9000).into());
        let (mut server, _) = runtime.run(|| listener.accept()).unwrap();
        runtime.run(|| drop(listener));
        let refused = pair.far.run(|| std::net::TcpStream::connect((NEAR4, 9000))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        client.write_all(b"still there").unwrap();
        let mut buf = [0; 11];
        runtime.run(|| server.read_exact(&mut buf).and_then(|()| server.write_all(&buf))).unwrap();
        client.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"still there");
        runtime.run(|| TcpListener::bind("0.0.0.0:9000")).unwrap();
    });
}

/// Waits end at time limits and cancellation, and futures wait like tasks.
#[test]
fn limits_handles_and_futures_work_on_connections_of_lanes() {
    with_lanes("", |runtime, pair| {
        let listener = runtime.run(|| TcpListener::bind("0.0.0.0:9000")).unwrap();
        let mut client = connect(pair, (NEAR4, 9000).into());
        let (server, _) = runtime.block_on(async { listener.accept_async().await }).unwrap();
        let read = |server: &TcpStream| runtime.run(|| (&mut &*server).read(&mut [0; 8]));
        server.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        assert_eq!(read(&server).unwrap_err().kind(), ErrorKind::WouldBlock);
        server.set_nonblocking(true).unwrap();
        assert_eq!(read(&server).unwrap_err().kind(), ErrorKind::WouldBlock);
        let other = runtime.run(|| server.try_clone()).unwrap();
        other.set_nonblocking(false).unwrap();
        other.set_read_timeout(None).unwrap();
        drop(server);
        let waits = runtime.spawn(move || {
            let mut buf = [0; 8];
            let count = (&mut &other).read(&mut buf).unwrap();
            (other, buf[..count].to_vec())
        });
        client.write_all(b"late").unwrap();
        let (other, text) = waits.join().unwrap();
        assert_eq!(text, b"late");
        assert!(other.nodelay().is_ok_and(|nodelay| !nodelay) && other.set_nodelay(true).is_ok());
        assert!(other.take_error().unwrap().is_none());
        assert_eq!(other.ttl().unwrap_err().kind(), ErrorKind::Unsupported);
        client.write_all(b"ok").unwrap();
        let echoed = runtime.block_on(async {
            other.write_async(b"by a future").await?;
            let mut buf = [0; 8];
            let count = other.read_async(&mut buf).await?;
            std::io::Result::Ok(buf[..count].to_vec())
        });
        let mut buf = [0; 11];
        client.read_exact(&mut buf).unwrap();
        assert_eq!((&buf, echoed.unwrap()), (b"by a future", b"ok".to_vec()));
        assert!(runtime.run(|| other.into_std()).is_err(), "the kernel has no socket of it");
    });
}

#[test]
fn what_is_wrong_is_said() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let Ok(pair) = Pair::new(1) else { return eprintln!("skipped: no network namespaces") };
    let build = |network: &str| {
        let network = network.parse().unwrap();
        pair.near.run(|| Runtime::builder().net(network).workers(1).build())
    };
    let says = |network: &str, part: &str| {
        let error = build(network).err().unwrap().to_string();
        assert!(error.contains(part), "{network}: {error}");
    };
    says("xdp:nope0", "nope0");
    says("xdp:lo", "lo");
    says(&format!("xdp:{NEAR},policy=nope"), "nope");
    says(&format!("xdp:{NEAR},allow=everybody"), "everybody");
    pair.near.ip(&format!("link set {NEAR} mtu 3000")).unwrap();
    says(&format!("xdp:{NEAR}"), "mtu 1500");
    pair.near.ip(&format!("link set {NEAR} mtu 1500")).unwrap();
    let first = build(&format!("xdp:{NEAR}")).unwrap();
    says(&format!("xdp:{NEAR}"), NEAR);
    let second = build(&format!("auto:{NEAR}")).unwrap();
    assert!(first.network().is_some() && second.network().is_none());
}

/// Returns what this process answers to `question` about its lanes: the lines.
fn diag(question: &str) -> Vec<String> {
    let own = format!("{}-", std::process::id());
    let entries = std::fs::read_dir(heddle::netstack::diag::folder()).unwrap().flatten();
    let mut sockets = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own));
    let mut socket = UnixStream::connect(sockets.next().expect("a socket").path()).unwrap();
    assert!(sockets.next().is_none(), "one network");
    socket.write_all(question.as_bytes()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn other_processes_can_list_the_sockets() {
    with_lanes("", |runtime, pair| {
        let udp = runtime.run(|| UdpSocket::bind("0.0.0.0:9000")).unwrap();
        let server = serve_echo(runtime, "0.0.0.0:9001");
        let mut client = connect(pair, (NEAR4, server.port()).into());
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        let lines = diag("sockets\n");
        let has = |parts: &[&str]| {
            let has_all = |line: &&String| parts.iter().all(|part| line.contains(part));
            assert!(lines.iter().any(|line| has_all(&line)), "{parts:?} in {lines:#?}");
        };
        has(&["\"is\":\"net\"", "\"schema\":1", NEAR, "\"lanes\":2", "\"policy\":\"hash\""]);
        has(&["\"is\":\"udp\"", "\"local\":\"0.0.0.0:9000\"", "\"remote\":null"]);
        for lane in ["\"lane\":0", "\"lane\":1"] {
            has(&["\"is\":\"listener\"", lane, "\"local\":\"0.0.0.0:9001\""]);
        }
        let remote = format!("\"remote\":\"{}\"", client.local_addr().unwrap());
        has(&["\"is\":\"connection\"", "\"state\":\"ESTAB\"", &remote, "\"bytes_received\":5"]);
        assert_eq!(lines.last().unwrap(), "{\"is\":\"end\"}");

        let lines = diag("counters");
        for of in ["packets", "losses", "tcp", "control", "xdp"] {
            let of = format!("\"of\":\"{of}\"");
            assert!(lines.iter().any(|line| line.contains(&of)), "{of} in {lines:#?}");
        }
        assert_eq!(lines.last().unwrap(), "{\"is\":\"end\"}");
        assert!(diag("nonsense").is_empty());
        drop(udp);
        assert!(!diag("sockets").iter().any(|line| line.contains("\"udp\"")));
    });
    let own = format!("{}-", std::process::id());
    let left = std::fs::read_dir(heddle::netstack::diag::folder()).into_iter().flatten().flatten();
    assert!(!left.into_iter().any(|one| one.file_name().to_string_lossy().starts_with(&own)));
}

/// A client that does not read keeps neither the lanes nor the runtime's end waiting.
#[test]
fn a_client_that_does_not_read_holds_nothing_up() {
    let mut silent = None;
    with_lanes("", |runtime, pair| {
        let own = format!("{}-", std::process::id());
        let entries = std::fs::read_dir(heddle::netstack::diag::folder()).unwrap().flatten();
        let mut sockets = entries.map(|entry| entry.path());
        let is_own = |path: &std::path::PathBuf| {
            path.file_name().unwrap().to_string_lossy().starts_with(&own)
        };
        let path = sockets.find(is_own).unwrap();
        // It neither asks nor reads, and neither do those behind it.
        silent = Some([(); 8].map(|()| UnixStream::connect(&path).unwrap()));
        let server = serve_echo(runtime, "0.0.0.0:9000");
        let mut client = connect(pair, (NEAR4, server.port()).into());
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
    });
    drop(silent);
}
