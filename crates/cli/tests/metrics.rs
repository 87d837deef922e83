//! `heddle metrics` as Prometheus and node_exporter use it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use heddle_telemetry::{Layout, Page};
use heddle_test_support::until;
use rustix::process::{Pid, Signal, kill_process};

fn metrics(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.arg("metrics").args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A page of this process, found by its policy.
fn page(policy: &str) -> Page {
    let layout = Layout {
        labels: policy,
        counters: &[("heddle_runtime_switches_total", "worker=0")],
        histograms: &[("heddle_runtime_wait_seconds", "class=lc")],
        ..Layout::default()
    };
    let page = Page::create(&layout).expect("a page");
    page.counter(0).add(41);
    page.histogram(0).record(5_000);
    page
}

/// The server, which ends with the test, and where it says that it is.
struct Server(Child, String);

impl Server {
    fn start(address: &str) -> Server {
        let mut child = metrics(&["--no-kernel", "--listen", address]).spawn().expect("it starts");
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        let place = line.trim().strip_prefix("Metrics are at ").unwrap_or_else(|| panic!("{line}"));
        Server(child, place.into())
    }

    fn ask(&self, request: &str) -> String {
        let place = self.1.strip_prefix("http://").and_then(|at| at.strip_suffix("/metrics"));
        ask(TcpStream::connect(place.expect("an address")).expect("connected"), request)
    }

    fn interrupt(mut self) -> Option<i32> {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::INT).expect("a signal");
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(mut client: impl Read + Write, request: &str) -> String {
    let mut answer = Vec::new();
    // The server may close before it has read all of a request that is too long: then this is reset.
    let _ = client.write_all(request.as_bytes());
    let _ = client.read_to_end(&mut answer);
    text(&answer)
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn once_prints_what_pages_and_sources_show() {
    let _page = page("policy=once");
    let output = metrics(&["--once", "--no-kernel"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let mine = "heddle_runtime_switches_total{service=\"";
    let line = |line: &&str| line.starts_with(mine) && line.contains("policy=\"once\"");
    let line = shown.lines().find(line).unwrap_or_else(|| panic!("{shown}"));
    assert!(line.contains("executor=\"0\"") && line.ends_with("} 41"), "{line}");
    assert!(shown.contains("heddle_runtime_wait_seconds_count{"), "{shown}");
    assert!(shown.contains("heddle_exporter_source_up{source=\"pages\"} 1\n"), "{shown}");
    assert!(shown.contains("heddle_exporter_source_up{source=\"kernel\"} 0\n"), "{shown}");
    assert!(shown.ends_with("# EOF\n"), "{shown}");
}

#[test]
fn the_server_answers_one_path_and_survives_its_clients() {
    let page = page("policy=served");
    let server = Server::start("127.0.0.1:0");
    let answer = server.ask(GET);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0"));
    assert!(answer.contains("policy=\"served\"} 41\n"), "{answer}");
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("PUT /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\x16\x03\x01\x02\x03", "400"),
    ] {
        let answer = server.ask(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    // One that sends too much, one that says nothing, and one that leaves.
    server.ask(&format!("GET /metrics HTTP/1.1\r\nA: {}", "x".repeat(1 << 20)));
    let silent = server.ask("GET /metrics HTTP/1.1\r\n");
    assert_eq!(silent, "", "it is given up");
    page.counter(0).add(1);
    assert!(server.ask(GET).contains("policy=\"served\"} 42\n"));
    // The page ends; what it counted stays.
    drop(page);
    assert!(server.ask(GET).contains("policy=\"served\"} 42\n"));
    assert_eq!(server.interrupt(), Some(0), "a server that drains on Ctrl-C is done");
}

#[test]
fn a_unix_socket_is_removed_at_the_end_and_a_stale_one_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    let address = format!("unix:{}", path.display());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = Server::start(&address);
    assert_eq!(server.1, address);
    let answer = ask(UnixStream::connect(&path).unwrap(), GET);
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let second = metrics(&["--no-kernel", "--listen", &address]).output().unwrap();
    assert_eq!(second.status.code(), Some(1), "the first still listens");
    assert!(text(&second.stderr).contains("cannot listen on"), "{}", text(&second.stderr));
    assert_eq!(server.interrupt(), Some(0));
    assert!(!path.exists());
    fs::write(&path, "mine").unwrap();
    assert_eq!(metrics(&["--listen", &address]).output().unwrap().status.code(), Some(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn the_file_is_always_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heddle.prom");
    let arguments = ["--no-kernel", "--interval", "100ms", "--output", file.to_str().unwrap()];
    let child = metrics(&arguments).spawn().unwrap();
    let server = Server(child, String::new());
    until("the file is there", || file.exists());
    for _ in 0..20 {
        let shown = fs::read_to_string(&file).unwrap();
        assert!(shown.contains("heddle_exporter_source_up{source=\"pages\"} 1\n"), "{shown}");
        assert!(!shown.contains("# UNIT"), "the older form: {shown}");
        thread::yield_now();
    }
    assert_eq!(server.interrupt(), Some(0));
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

fn refused(arguments: &[&str]) -> Output {
    let output = metrics(arguments).output().unwrap();
    assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
    output
}

#[test]
fn wrong_usage_is_said_in_a_sentence() {
    for (arguments, says) in [
        (&[][..], "--listen"),
        (&["--once", "--listen", "127.0.0.1:0"], "cannot be used with"),
        (&["--listen", "nowhere"], "HOST:PORT"),
        (&["--output", "/nonexistent/x.prom"], "/nonexistent"),
        (&["--once", "--interval", "5s"], "cannot be used with"),
        (&["--output", "/dev/null", "--interval", "1ms"], "100ms"),
    ] {
        let output = refused(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
    let here = Path::new("/dev/full");
    if here.exists() {
        let full = fs::File::options().write(true).open(here).unwrap();
        let output = metrics(&["--once", "--no-kernel"]).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
    }
}
