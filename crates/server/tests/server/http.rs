//! The web server, byte by byte.

use std::fs;
use std::os::unix::fs::symlink;

use heddle_server::{Protocol, Server};

use crate::harness::{Client, on_each_speaking, temp_dir};

/// A folder of files, and a secret file next to it.
fn site() -> heddle_test_support::TempDir {
    let dir = temp_dir();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    fs::write(root.join("index.html"), "<p>home</p>").unwrap();
    fs::write(root.join("a b.txt"), "text").unwrap();
    fs::write(root.join("empty.css"), "").unwrap();
    fs::write(root.join("sub/index.html"), "<p>sub</p>").unwrap();
    fs::write(root.join("big.bin"), big()).unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink("sub/index.html", root.join("in.html")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), 0o600.into()).unwrap();
    dir
}

fn big() -> Vec<u8> {
    (0..3_000_000u32).map(|n| (n % 251) as u8).collect()
}

fn on_site(test: impl Fn(&Server)) {
    let dir = site();
    on_each_speaking(&Protocol::Http { root: dir.path().join("root") }, test);
}

/// Returns the answer to one request on a new connection.
fn ask(server: &Server, line: &str) -> (u16, String, String) {
    let mut client = Client::to(server);
    client.send(format!("{line}\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes());
    let answer = client.rest();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{line}: {answer}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_owned(), body.to_owned())
}

#[test]
fn files_are_served_by_their_names() {
    on_site(|server| {
        for (path, kind, body) in [
            ("/", "text/html; charset=utf-8", "<p>home</p>"),
            ("//index.html?x=/../", "text/html; charset=utf-8", "<p>home</p>"),
            ("/a%20b.txt", "text/plain; charset=utf-8", "text"),
            ("/empty.css", "text/css; charset=utf-8", ""),
            ("/sub", "text/html; charset=utf-8", "<p>sub</p>"),
            ("/sub/", "text/html; charset=utf-8", "<p>sub</p>"),
            ("/in.html", "text/html; charset=utf-8", "<p>sub</p>"),
            ("http://host/sub/../a%20b.txt", "text/plain; charset=utf-8", "text"),
        ] {
            let (status, head, got) = ask(server, &format!("GET {path} HTTP/1.1"));
            assert_eq!((status, got.as_str()), (200, body), "{path}");
            assert!(head.contains(&format!("\r\nContent-Type: {kind}\r\n")), "{head}");
            assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
            let (status, head_of_head, nothing) = ask(server, &format!("HEAD {path} HTTP/1.1"));
            assert_eq!((status, nothing.as_str()), (200, ""));
            assert!(head_of_head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
        }
    });
}

#[test]
fn what_is_not_to_be_had_is_refused_and_says_why() {
    on_site(|server| {
        for (line, status) in [
            ("GET /none HTTP/1.1", 404),
            ("GET /a%20b.txt/ HTTP/1.1", 404),
            ("GET /../secret HTTP/1.1", 403),
            ("GET /%2e%2e/secret HTTP/1.1", 403),
            ("GET /sub/../../secret HTTP/1.1", 403),
            ("GET /out HTTP/1.1", 403),
            ("GET /fifo HTTP/1.1", 403),
            ("GET /%00 HTTP/1.1", 400),
            ("GET nothing HTTP/1.1", 400),
            ("DELETE /index.html HTTP/1.1", 405),
            ("BREW / HTTP/1.1", 501),
            ("GET / HTTP/3.0", 505),
            ("nonsense", 400),
        ] {
            let (got, head, body) = ask(server, line);
            assert_eq!(got, status, "{line}: {head}");
            assert!(body.starts_with(&status.to_string()), "{line}: {body}");
            assert!(!body.contains("secret"));
            assert_eq!(head.contains("\r\nAllow: GET, HEAD\r\n"), status == 405, "{head}");
        }
    });
}

#[test]
fn pipelined_requests_are_answered_in_order_on_one_connection() {
    on_site(|server| {
        let mut client = Client::to(server);
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        let post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 32\r\n\r\nGET /secret HTTP/1.1\r\n\r\n12345678";
        let last = "GET /sub HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let all = [get("/"), get("/none"), get("/big.bin"), post.into(), last.into(), get("/")];
        client.send(all.concat().as_bytes());
        let mut answer = Vec::new();
        std::io::Read::read_to_end(&mut client.0, &mut answer).unwrap();
        let text = String::from_utf8_lossy(&answer);
        let statuses: Vec<&str> =
            text.match_indices("HTTP/1.1 ").map(|(at, _)| &text[at + 9..at + 12]).collect();
        assert_eq!(statuses, ["200", "404", "200", "405", "200"]);
        assert!(text.ends_with("<p>sub</p>"));
        let big = big();
        assert!(answer.windows(big.len()).any(|window| window == big));
    });
}

#[test]
fn a_head_that_is_too_long_is_431_and_the_client_reads_it() {
    on_site(|server| {
        let mut client = Client::to(server);
        client.send(format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}", "a".repeat(100_000)).as_bytes());
        assert!(client.rest().starts_with("HTTP/1.1 431 "));
        let mut client = Client::to(server);
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        assert!(client.rest().starts_with("HTTP/1.1 501 "));
    });
}

/// A file that shrinks while it is sent: the client sees that something is missing, not other bytes.
#[test]
fn a_file_that_is_cut_short_ends_the_connection() {
    let dir = site();
    let root = dir.path().join("root");
    on_each_speaking(&Protocol::Http { root: root.clone() }, |server| {
        let path = root.join("shrinks");
        let file = fs::File::create(&path).unwrap();
        // More than the sockets hold, so that the server cannot have sent all of it when it is truncated.
        file.set_len(64 << 20).unwrap();
        let mut client = Client::to(server);
        client.send(b"GET /shrinks HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.line(), "HTTP/1.1 200 OK");
        file.set_len(0).unwrap();
        assert!(client.rest().len() < 64 << 20);
    });
}
