use super::*;

fn head(text: &str) -> Head {
    match parse(text.as_bytes()) {
        Parsed::Head(head, len) => {
            assert_eq!(len, text.len());
            head
        }
        other => panic!("{text:?}: {other:?}"),
    }
}

fn refusal(text: &str) -> u16 {
    match parse(text.as_bytes()) {
        Parsed::Bad(status) => status.0,
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn a_head_is_whole_or_partial_at_every_byte() {
    let text = b"GET /a%20b?c=d HTTP/1.1\r\nHost: x\r\n\r\nGET";
    for end in 0..text.len() - 3 {
        assert_eq!(parse(&text[..end]), Parsed::Partial, "{end}");
    }
    let Parsed::Head(head, len) = parse(text) else { panic!() };
    assert_eq!((head.path, len), (Ok(b"/a b".to_vec()), text.len() - 3));
}

#[test]
fn connections_are_kept_as_the_version_and_the_client_say() {
    for (line, fields, kept) in [
        ("HTTP/1.1", "Host: x\r\n", true),
        ("HTTP/1.1", "Host: x\r\nConnection: Close\r\n", false),
        ("HTTP/1.1", "Host: x\r\nConnection: upgrade, close\r\n", false),
        ("HTTP/1.0", "", false),
        ("HTTP/1.0", "Connection: keep-alive\r\n", true),
        ("HTTP/1.1", "Host: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n", false),
    ] {
        assert_eq!(head(&format!("GET / {line}\r\n{fields}\r\n")).keep, kept, "{line} {fields}");
    }
}

#[test]
fn targets_are_paths_or_addresses() {
    for (target, path) in [
        ("/", Ok(&b"/"[..])),
        ("http://host/a", Ok(b"/a")),
        ("http://host", Ok(b"/")),
        ("/%2e%2E/x", Ok(b"/../x")),
        ("/%00", Err(400)),
        ("/%4", Err(400)),
        ("/%zz", Err(400)),
        ("*", Err(400)),
        ("host:80", Err(400)),
    ] {
        let head = head(&format!("GET {target} HTTP/1.0\r\n\r\n"));
        assert_eq!(head.path.as_deref().map_err(|status| status.0), path, "{target}");
    }
}

#[test]
fn methods_that_files_do_not_know_are_refused_by_themselves() {
    let path = |method: &str| head(&format!("{method} / HTTP/1.0\r\n\r\n")).path;
    assert_eq!(path("POST"), Err(Status::NOT_ALLOWED));
    assert_eq!(path("BREW"), Err(Status::NOT_IMPLEMENTED));
    assert_eq!(path("get"), Err(Status::NOT_IMPLEMENTED));
}

#[test]
fn malformed_heads_are_refused_for_good() {
    let long = "x".repeat(MAX_HEAD);
    let many = "a: b\r\n".repeat(MAX_FIELDS + 1);
    for (text, status) in [
        ("\0\0\0", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nContent-Length: -1\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\n\r\n", 505),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
        (&format!("GET /{long}"), 431),
        (&format!("GET / HTTP/1.0\r\n{many}\r\n"), 431),
    ] {
        assert_eq!(refusal(text), status, "{}", &text[..text.len().min(60)]);
    }
}
