//! A small server of one page: `GET /metrics`. One connection at a time, one request each.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use heddle_export::openmetrics::CONTENT_TYPE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::address::Address;

/// The longest request that is read.
const LONGEST: usize = 8192;
/// Headers of a request.
const HEADERS: usize = 64;
/// How long a client may take to send its request, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is checked whether to stop, in nanoseconds.
const GLANCE: i64 = 100_000_000;

/// The socket to which clients connect. The file of a Unix socket is removed at the end.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// What a client's connection can do.
trait Stream: Read + Write {
    fn limit(&self, time: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time)).and_then(|()| self.set_write_timeout(Some(time)))
    }
}

impl Stream for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time)).and_then(|()| self.set_write_timeout(Some(time)))
    }
}

impl Listener {
    /// Listens. A Unix socket without a listener is replaced.
    pub fn open(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Tcp(listener))
            }
            Address::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Unix(listener, path.clone()))
            }
        }
    }

    /// Returns the address, with the port that the kernel chose for port 0.
    pub fn address(&self) -> String {
        match self {
            Listener::Tcp(listener) => {
                listener.local_addr().map(|address| format!("http://{address}/metrics"))
            }
            Listener::Unix(_, path) => Ok(format!("unix:{}", path.display())),
        }
        .unwrap_or_default()
    }

    /// Answers requests with what `text` returns, until `stop` is set.
    pub fn serve(&self, stop: &AtomicBool, mut text: impl FnMut() -> String) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            if !is_readable(self.as_fd())? {
                continue;
            }
            // A client that goes away, or is slow, is its own affair.
            let _ = match self {
                Listener::Tcp(listener) => listener.accept().and_then(|(mut client, _)| {
                    client.set_nonblocking(false)?;
                    answer(&mut client, &mut text)
                }),
                Listener::Unix(listener, _) => listener.accept().and_then(|(mut client, _)| {
                    client.set_nonblocking(false)?;
                    answer(&mut client, &mut text)
                }),
            };
        }
        Ok(())
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a socket's file that a server left behind; anything else stays, and binding then fails.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    match is_socket && UnixStream::connect(path).is_err_and(is_refused) {
        true => fs::remove_file(path),
        false => Ok(()),
    }
}

/// Waits a little; returns whether a client waits.
fn is_readable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let time = Timespec { tv_sec: 0, tv_nsec: GLANCE };
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads a request and answers it.
fn answer(client: &mut impl Stream, text: &mut impl FnMut() -> String) -> io::Result<()> {
    let (status, content, body) = match read_request(client)? {
        Request::Metrics => ("200 OK", CONTENT_TYPE, text()),
        Request::Other(status, why) => (status, "text/plain; charset=utf-8", format!("{why}\n")),
    };
    client.limit(PATIENCE)?;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())?;
    client.flush()
}

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Metrics,
    /// The status, and a sentence.
    Other(&'static str, &'static str),
}

/// Reads the head of a request, within the time and the length that a client has.
fn read_request(client: &mut impl Stream) -> io::Result<Request> {
    let (mut head, mut part, begin) = (Vec::new(), [0; 1024], Instant::now());
    loop {
        let left = PATIENCE.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.limit(left)?;
        let read = client.read(&mut part)?;
        head.extend_from_slice(&part[..read]);
        match parse(&head) {
            Some(request) => return Ok(request),
            None if read == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            None if head.len() > LONGEST => {
                return Ok(Request::Other("431 Request Header Fields Too Large", "too long"));
            }
            None => {}
        }
    }
}

/// Returns what the request asks for; `None` if it is not complete.
fn parse(head: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Some(Request::Other("400 Bad Request", "this is no request of HTTP")),
    }
    let path = request.path.unwrap_or_default().split('?').next();
    Some(match (request.method, path) {
        (Some("GET"), Some("/metrics")) => Request::Metrics,
        (Some("GET"), _) => Request::Other("404 Not Found", "metrics are at /metrics"),
        _ => Request::Other("405 Method Not Allowed", "only GET is answered"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_metrics_are_served() {
        let of = |text: &str| match parse(text.as_bytes()) {
            Some(Request::Other(status, _)) => status.to_owned(),
            other => format!("{other:?}"),
        };
        assert_eq!(of("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), "Some(Metrics)");
        assert_eq!(of("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), "Some(Metrics)");
        assert_eq!(of("GET / HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(of("POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        assert_eq!(of("\x16\x03\x01 hello"), "400 Bad Request");
        assert_eq!(of("GET /metrics HTTP/1.1\r\nHost:"), "None");
        let many = "A: b\r\n".repeat(HEADERS + 1);
        assert_eq!(of(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n")), "400 Bad Request");
    }
}
