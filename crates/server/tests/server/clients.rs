//! Redis' own clients, of Debian's redis-tools.

use std::process::Command;

use heddle_server::Server;

use crate::harness::{Client, on_each};

/// Runs one of the tools against `server` and returns what it prints.
fn tool(server: &Server, name: &str, args: &[&str]) -> String {
    let port = server.tcp().unwrap().port().to_string();
    let output = Command::new(name)
        .args(["-h", "127.0.0.1", "-p", &port])
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{name}: {e}; install it: apt install redis-tools"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{name} {args:?}: {text}");
    text
}

#[test]
fn redis_cli_reads_and_writes() {
    on_each(|server| {
        let ask = |args: &[&str]| tool(server, "redis-cli", args).trim_end().to_owned();
        assert_eq!(ask(&["PING"]), "PONG");
        assert_eq!(ask(&["SET", "k1", "a value\nof two lines"]), "OK");
        assert_eq!(ask(&["GET", "k1"]), "a value\nof two lines");
        assert_eq!(ask(&["SET", "k2", "two"]), "OK");
        assert_eq!(ask(&["EXISTS", "k1", "k2", "k3"]), "2");
        assert_eq!(ask(&["RANGE", "k2", "10"]), "k2\ntwo");
        assert_eq!(ask(&["DEL", "k1", "k3"]), "1");
        assert_eq!(ask(&["GET", "k1"]), "");
        assert!(ask(&["INFO"]).contains("store:"));
        assert!(ask(&["COMMAND"]).contains("range"));
        assert!(ask(&["NOPE"]).contains("unknown command"));
    });
}

#[test]
fn redis_benchmark_runs_to_its_end() {
    on_each(|server| {
        let args =
            ["-t", "ping,set,get", "-n", "2000", "-c", "20", "-P", "4", "-r", "100", "--csv"];
        let table = tool(server, "redis-benchmark", &args);
        for test in ["PING_INLINE", "PING_MBULK", "SET", "GET"] {
            assert!(table.contains(&format!("\"{test}\"")), "{table}");
        }
        assert!(!table.contains("Error"), "{table}");
    });
}

#[test]
fn pipelines_and_lines_are_answered_in_order() {
    on_each(|server| {
        let mut client = Client::to(server);
        client.talk("SET a 1\r\nGET a\r\nGET b\nPING\r\n", "+OK\r\n$1\r\n1\r\n$-1\r\n+PONG\r\n");
        client.talk("*2\r\n$4\r\nEC", "");
        client.talk("HO\r\n$2\r\nhi\r\n", "$2\r\nhi\r\n");
        client.talk("QUIT\r\n", "+OK\r\n");
        assert_eq!(client.rest(), "");
    });
}

/// More replies than the socket's buffers hold, so that the server must wait for its client.
#[test]
fn long_replies_arrive_whole() {
    on_each(|server| {
        let mut client = Client::to(server);
        let value = "x".repeat(100_000);
        client.talk(&format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n{value}\r\n"), "+OK\r\n");
        client.send("GET k\r\n".repeat(100).as_bytes());
        let reply = format!("$100000\r\n{value}\r\n");
        (0..100).for_each(|_| client.talk("", &reply));
    });
}
