//! Programs that know nothing of Heddle as clients and neighbours of a server under lanes. Skipped without root, and
//! one by one where a program is not installed.

mod common;

use common::scenarios::{self, Scale, pattern, requests};
use common::server::{ECHO, FILES, REDIS};
use common::{Server, output, pair};
use heddle_netns::{FAR, FAR4, FAR6, NEAR, NEAR4, NEAR6, Pair};
use heddle_test_support::{find_program, temp_dir};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};

#[test]
#[ignore = "the server of the other tests"]
fn serve() {
    common::server::serve();
}

/// Megabytes of a file that is moved to the server and back.
fn megabytes() -> usize {
    std::env::var("HEDDLE_TEST_MEGABYTES").map_or(20, |text| text.parse().unwrap())
}

/// Returns a command that runs in the far end; `None` if the program is not installed.
fn far(net: &Pair, program: &str) -> Option<Command> {
    let path = find_program(program, "scripts/setup")?;
    Some(net.far.command(path.to_str().unwrap()))
}

#[test]
fn curl_uploads_and_downloads_files() {
    let Some(net) = pair() else { return };
    let Some(mut upload) = far(&net, "curl") else { return };
    let _server = Server::start(&net.near, "");
    let folder = temp_dir();
    let [original, copy] = ["original", "copy"].map(|name| folder.path().join(name));
    std::fs::write(&original, pattern(megabytes() << 20)).unwrap();
    for host in [NEAR4.to_string(), format!("[{NEAR6}]")] {
        let url = format!("http://{host}:{FILES}/file");
        let common = ["--silent", "--show-error", "--fail", "--globoff"];
        let put = upload.args(common).arg("--upload-file").arg(&original).arg(&url);
        output(put);
        upload = far(&net, "curl").unwrap();
        output(far(&net, "curl").unwrap().args(common).arg("--output").arg(&copy).arg(&url));
        let sums = output(Command::new("sha256sum").args([&original, &copy]));
        let sums: Vec<&str> = sums.lines().map(|line| &line[..64]).collect();
        assert_eq!(sums[0], sums[1], "by {host}");
    }
}

/// As containers have it: senders leave checksums and segmentation to the interface, and a veth pair to the receiver.
#[test]
fn senders_may_leave_checksums_to_the_interface() {
    let Some(net) = pair() else { return };
    let on = ["-K", FAR, "tx", "on", "tso", "on", "gso", "on", "gro", "on"];
    output(net.far.command("ethtool").args(on));
    let mut server = Server::start(&net.near, "");
    for address in [IpAddr::from(NEAR4), NEAR6.into()] {
        let scale = Scale { bytes: 8 << 20, requests: 100, connections: 100 };
        net.far.run(|| scenarios::all(address, scale));
    }
    let counters = server.order("counters");
    assert_eq!((counters["bad_checksum"], counters["bad_segments"]), (0, 0), "{counters:?}");
}

#[test]
fn socat_moves_bytes_both_ways() {
    let Some(net) = pair() else { return };
    let Some(_) = far(&net, "socat") else { return };
    let _server = Server::start(&net.near, "");
    let text = pattern(1 << 20);
    for address in [format!("TCP4:{NEAR4}:{ECHO}"), format!("TCP6:[{NEAR6}]:{ECHO}")] {
        let mut socat = far(&net, "socat").unwrap();
        // It waits for the other end for a minute after its input has ended.
        socat.args(["-t", "60", "-", &address]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut socat = heddle_test_support::Running::start(&mut socat);
        let (mut input, mut printed) =
            (socat.child().stdin.take().unwrap(), socat.child().stdout.take().unwrap());
        let sent = text.clone();
        let sends = std::thread::spawn(move || input.write_all(&sent).unwrap());
        let mut back = Vec::new();
        printed.read_to_end(&mut back).unwrap();
        sends.join().unwrap();
        assert!(back == text, "{address}: {} bytes", back.len());
        assert_eq!(socat.exit_code(), 0);
    }
}

#[test]
fn redis_benchmark_sees_no_error() {
    let Some(net) = pair() else { return };
    let Some(_) = far(&net, "redis-benchmark") else { return };
    let _server = Server::start(&net.near, "");
    for (address, pipelined) in [(NEAR4.to_string(), "1"), (NEAR4.to_string(), "16")] {
        let mut benchmark = far(&net, "redis-benchmark").unwrap();
        benchmark.args(["-h", &address, "-p", &REDIS.to_string(), "-P", pipelined]);
        let printed = output(benchmark.args([
            "-t",
            "ping_mbulk,set,get",
            "-n",
            "20000",
            "-c",
            "50",
            "-d",
            "512",
            "--csv",
        ]));
        assert!(printed.contains("\"GET\"") && !printed.contains("Error"), "{printed}");
    }
    let mut cli = far(&net, "redis-cli").unwrap();
    cli.args(["-h", &NEAR6.to_string(), "-p", &REDIS.to_string()]);
    assert_eq!(output(cli.args(["GET", "key:__rand_int__"])).trim().len(), 512);
}

const PYTHON: &str = r#"
import asyncio, socket, sys
host, port = sys.argv[1], int(sys.argv[2])
async def client(number):
    reader, writer = await asyncio.open_connection(host, port)
    for round in range(20):
        text = bytes([number % 256, round]) * 500
        writer.write(text)
        assert await reader.readexactly(1000) == text
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
async def main():
    await asyncio.gather(*(client(number) for number in range(50)))
asyncio.run(main())
with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
    datagrams.settimeout(60)
    for length in (0, 1, 1000, 5000):
        datagrams.sendto(b"x" * length, (host, port))
        assert datagrams.recv(65536) == b"x" * length
"#;

#[test]
fn python_speaks_over_connections_and_datagrams() {
    let Some(net) = pair() else { return };
    let Some(_) = far(&net, "python3") else { return };
    let _server = Server::start(&net.near, "");
    for address in [IpAddr::from(NEAR4), NEAR6.into()] {
        let mut python = far(&net, "python3").unwrap();
        output(python.args(["-c", PYTHON, &address.to_string(), &ECHO.to_string()]));
    }
}

const GO: &str = r#"package main

import ("bytes"; "fmt"; "io"; "net/http"; "os"; "sync")

func main() {
	var clients sync.WaitGroup
	for number := 0; number < 20; number++ {
		clients.Add(1)
		go func() {
			defer clients.Done()
			url := fmt.Sprintf("http://%s/go-%d", os.Args[1], number)
			for round := 0; round < 20; round++ {
				text := bytes.Repeat([]byte{byte(number), byte(round)}, 5000)
				put, err := http.NewRequest("PUT", url, bytes.NewReader(text))
				check(err)
				answer, err := http.DefaultClient.Do(put)
				check(err)
				answer.Body.Close()
				answer, err = http.Get(url)
				check(err)
				back, err := io.ReadAll(answer.Body)
				check(err)
				answer.Body.Close()
				if !bytes.Equal(back, text) { panic("wrong bytes") }
			}
		}()
	}
	clients.Wait()
}

func check(err error) { if err != nil { panic(err) } }
"#;

#[test]
fn go_speaks_http_over_connections_that_stay_open() {
    let Some(net) = pair() else { return };
    let installed = ["go", "/usr/local/go/bin/go"];
    let Some(go) = installed.iter().find_map(|name| find_program(name, "scripts/setup --go"))
    else {
        return;
    };
    let folder = temp_dir();
    let [source, program] = ["main.go", "client"].map(|name| folder.path().join(name));
    std::fs::write(&source, GO).unwrap();
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&program).arg(&source).env("CGO_ENABLED", "0");
    output(build.current_dir(folder.path()));
    let _server = Server::start(&net.near, "");
    for host in [NEAR4.to_string(), format!("[{NEAR6}]")] {
        output(net.far.command(program.to_str().unwrap()).arg(format!("{host}:{FILES}")));
    }
}

/// ICMP, ARP and neighbour discovery are the kernel's, while lanes serve.
#[test]
fn ping_and_neighbour_discovery_work_beside_lanes() {
    let Some(net) = pair() else { return };
    let _server = Server::start(&net.near, "");
    for (end, interface, others) in [
        (&net.near, NEAR, [IpAddr::from(FAR4), FAR6.into()]),
        (&net.far, FAR, [NEAR4.into(), NEAR6.into()]),
    ] {
        others
            .iter()
            .for_each(|other| end.ip(&format!("neigh del {other} dev {interface}")).unwrap());
    }
    for address in [IpAddr::from(NEAR4), NEAR6.into()] {
        net.far.run(|| requests(address, 50));
        let Some(mut ping) = far(&net, "ping") else { continue };
        output(ping.args(["-c", "3", "-i", "0.2", "-w", "60", &address.to_string()]));
    }
}

/// Both ends have lanes.
#[test]
fn lanes_serve_clients_of_lanes() {
    let Some(net) = pair() else { return };
    let mut server = Server::start(&net.near, "");
    let mut client = Server::start_on(&net.far, FAR, "");
    for address in [IpAddr::from(NEAR4), NEAR6.into()] {
        let address = SocketAddr::new(address, ECHO);
        client.order(&format!("echo {address} 5000000"));
        client.order(&format!("connections {address} 800"));
    }
    assert_eq!(client.order("counters")["active_opens"], 1602);
    assert_eq!(server.order("counters")["passive_opens"], 1602);
}

/// Heddle is the client, and the kernel the server.
#[test]
fn the_kernel_serves_clients_of_lanes() {
    let Some(net) = pair() else { return };
    let mut server = Server::start(&net.near, "");
    for address in [IpAddr::from(FAR4), FAR6.into()] {
        let listener = net.far.run(|| TcpListener::bind((address, ECHO))).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    std::io::copy(&mut stream.try_clone().unwrap(), &mut stream)
                });
            }
        });
        let address = SocketAddr::new(address, ECHO);
        for length in [1, 10_000, 5_000_000] {
            server.order(&format!("echo {address} {length}"));
        }
    }
    server.order(&format!("connections {FAR4}:{ECHO} 1600"));
    assert_eq!(server.order("counters")["active_opens"], 1606);
}
