//! `heddle kv serve` under lanes (`HEDDLE_NET`): the clients are Redis' own, beyond a pair of interfaces. Skipped
//! without root.

use heddle_netns::{NEAR, NEAR4, NEAR6, Pair, missing_privilege};
use heddle_test_support::{Running, find_program, run, until};
use std::process::Command;

const PORT: &str = "7379";

/// The key-value server in the near end, with lanes; `None`, having said why, if there cannot be one.
fn serve() -> Option<(Pair, Running)> {
    if let Some(missing) = missing_privilege() {
        eprintln!("skipped: {missing}");
        return None;
    }
    let net = Pair::new(2).unwrap();
    let mut server = net.near.command(env!("CARGO_BIN_EXE_heddle"));
    server.args(["kv", "serve", "--keys", "1000", "--udp", "none"]);
    server.args(["--tcp", &format!("[::]:{PORT}")]).env("HEDDLE_NET", format!("xdp:{NEAR}"));
    let server = Running::start_logged(&mut server);
    let connect = || std::net::TcpStream::connect((NEAR4, 7379)).is_ok();
    until("the server", || net.far.run(connect));
    Some((net, server))
}

fn client(net: &Pair, program: &str) -> Option<Command> {
    let path = find_program(program, "scripts/setup")?;
    Some(net.far.command(path.to_str().unwrap()))
}

#[test]
fn redis_clients_are_served_by_lanes() {
    let Some((net, _server)) = serve() else { return };
    let Some(mut cli) = client(&net, "redis-cli") else { return };
    let words = ["-h", &NEAR6.to_string(), "-p", PORT, "SET", "key", "value"];
    assert_eq!(run(cli.args(words)).trim(), "OK");
    for pipelined in ["1", "16"] {
        let Some(mut benchmark) = client(&net, "redis-benchmark") else { return };
        benchmark.args(["-h", &NEAR4.to_string(), "-p", PORT, "-P", pipelined, "--csv"]);
        let printed =
            run(benchmark.args(["-t", "set,get", "-n", "20000", "-c", "50", "-d", "100"]));
        assert!(printed.contains("\"GET\"") && !printed.contains("Error"), "{printed}");
    }
    let interface =
        run(Command::new("ip").args(["-n", net.near.name(), "-d", "link", "show", NEAR]));
    assert!(interface.contains("xdp"), "lanes have the interface: {interface}");
}
