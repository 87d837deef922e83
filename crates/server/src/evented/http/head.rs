//! Parsing the head of a request.

use httparse::{EMPTY_HEADER, Error, Header, Request};

use super::status::Status;

/// The longest head.
pub(super) const MAX_HEAD: usize = 16 << 10;
/// The most fields of a head.
const MAX_FIELDS: usize = 64;
/// HTTP methods that files do not support.
const KNOWN: [&str; 7] = ["POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// What the received bytes start with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// An incomplete head.
    Partial,
    /// A head, and its length.
    Head(Head, usize),
    /// Malformed: the next request cannot be found.
    Bad(Status),
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The path, decoded, or why it is refused.
    pub(super) path: Result<Vec<u8>, Status>,
    /// Whether only the answer's head is requested (HEAD).
    pub(super) head_only: bool,
    /// The version's last digit.
    pub(super) version: u8,
    /// Whether another request may follow.
    pub(super) keep: bool,
    /// Bytes of the body, which is discarded.
    pub(super) body: u64,
}

/// Parses what has arrived of a request.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut request = Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) if len <= MAX_HEAD => match understand(&request) {
            Ok(head) => Parsed::Head(head, len),
            Err(status) => Parsed::Bad(status),
        },
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => Parsed::Partial,
        Ok(_) | Err(Error::TooManyHeaders) => Parsed::Bad(Status::HEAD_TOO_LARGE),
        Err(Error::Version) => Parsed::Bad(Status::VERSION),
        Err(_) => Parsed::Bad(Status::BAD_REQUEST),
    }
}

fn understand(request: &Request<'_, '_>) -> Result<Head, Status> {
    let (method, target) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    let version = request.version.unwrap_or(0);
    let fields = &*request.headers;
    if values(fields, "transfer-encoding").next().is_some() {
        return Err(Status::NOT_IMPLEMENTED);
    }
    let hosts = values(fields, "host").count();
    if hosts > 1 || (version == 1 && hosts == 0) {
        return Err(Status::BAD_REQUEST);
    }
    let body = body(fields)?;
    let says = |word: &str| values(fields, "connection").any(|value| has_word(value, word));
    let keep = if version == 1 { !says("close") } else { says("keep-alive") };
    // The client decides whether to send the body only after it has our answer.
    let keep = keep && values(fields, "expect").next().is_none();
    let path = match method {
        "GET" | "HEAD" => path(target),
        other if KNOWN.contains(&other) => Err(Status::NOT_ALLOWED),
        _ => Err(Status::NOT_IMPLEMENTED),
    };
    Ok(Head { path, head_only: method == "HEAD", version, keep, body })
}

fn values<'a>(fields: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
    let named = move |field: &&Header<'_>| field.name.eq_ignore_ascii_case(name);
    fields.iter().filter(named).map(|field| field.value)
}

fn has_word(value: &[u8], word: &str) -> bool {
    let mut words = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    words.any(|one| one.eq_ignore_ascii_case(word.as_bytes()))
}

/// The length of the body. Two lengths are refused: they are how requests are smuggled past a proxy.
fn body(fields: &[Header<'_>]) -> Result<u64, Status> {
    let mut all = values(fields, "content-length");
    let Some(value) = all.next() else { return Ok(0) };
    let digits = value.iter().all(u8::is_ascii_digit) && all.next().is_none();
    let text = digits.then(|| std::str::from_utf8(value).ok()).flatten();
    text.and_then(|text| text.parse().ok()).ok_or(Status::BAD_REQUEST)
}

/// The path that a target names, without the query.
fn path(target: &str) -> Result<Vec<u8>, Status> {
    let after_scheme = target.strip_prefix("http://").or_else(|| target.strip_prefix("https://"));
    let path = match after_scheme {
        None => target,
        Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
    };
    if !path.starts_with('/') {
        return Err(Status::BAD_REQUEST);
    }
    let end = path.find(['?', '#']).unwrap_or(path.len());
    decode(&path.as_bytes()[..end]).filter(|path| !path.contains(&0)).ok_or(Status::BAD_REQUEST)
}

/// Decodes `%41` as `A`; `None` unless two hexadecimal digits follow.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| char::from(byte).to_digit(16));
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.iter());
    while let Some(&byte) = rest.next() {
        out.push(match byte {
            b'%' => (digit(rest.next())? << 4 | digit(rest.next())?) as u8,
            other => other,
        });
    }
    Some(out)
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
