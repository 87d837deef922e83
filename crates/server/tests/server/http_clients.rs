//! Third-party HTTP clients.

use std::fs;
use std::process::Command;

use heddle_server::{Protocol, Server};

use crate::harness::{on_each_speaking, temp_dir};

/// Returns what a client prints; `None`, with a note, if it is not installed.
fn tool(name: &str, args: &[&str]) -> Option<String> {
    let output = match Command::new(name).args(args).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: {name} is not installed; scripts/setup does that");
            return None;
        }
        Err(error) => panic!("{name}: {error}"),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {args:?}: {text} {complaint}");
    Some(text)
}

fn url(server: &Server, path: &str) -> String {
    format!("http://{}/{path}", server.tcp().unwrap())
}

fn on_site(test: impl Fn(&Server)) {
    let dir = temp_dir();
    fs::write(dir.path().join("page.html"), "<p>page</p>").unwrap();
    fs::write(dir.path().join("large.bin"), vec![42; 5_000_000]).unwrap();
    on_each_speaking(&Protocol::Http { root: dir.path().into() }, test);
}

#[test]
fn curl_fetches_over_one_connection_and_is_refused_where_it_should_be() {
    on_site(|server| {
        let pages = [&*url(server, "page.html"), &*url(server, "page.html")];
        let args = ["-sS", "--fail", "-w", "[%{num_connects} %{content_type}]", pages[0], pages[1]];
        let Some(text) = tool("curl", &args) else { return };
        let kind = "text/html; charset=utf-8";
        assert_eq!(text, format!("<p>page</p>[1 {kind}]<p>page</p>[0 {kind}]"));
        let large = url(server, "large.bin");
        let size = tool("curl", &["-sS", "-o", "/dev/null", "-w", "%{size_download}", &large]);
        assert_eq!(size.as_deref(), Some("5000000"));
        for (args, status) in [
            (&["--head"][..], "200"),
            (&["-X", "PUT", "-d", "x=1"], "405"),
            (&["-X", "BREW"], "501"),
            (&["-H", "Transfer-Encoding: chunked", "-d", "x=1"], "501"),
            (&["-H", "Host;"], "200"),
        ] {
            let all =
                [&["-sS", "-o", "/dev/null", "-w", "%{http_code}"], args, &[pages[0]]].concat();
            assert_eq!(tool("curl", &all).as_deref(), Some(status), "{args:?}");
        }
        let up = url(server, "../../etc/passwd");
        let text = tool("curl", &["-sS", "--path-as-is", &up]);
        assert_eq!(text.as_deref(), Some("403 Forbidden\n"));
    });
}

#[test]
fn wrk_sees_no_error() {
    on_site(|server| {
        let args = ["-t", "2", "-c", "50", "-d", "1s", &url(server, "page.html")];
        let Some(text) = tool("wrk", &args) else { return };
        assert!(text.contains("requests in"), "{text}");
        assert!(!text.contains("Socket errors") && !text.contains("Non-2xx"), "{text}");
    });
}
