//! Serving one client, and cleaning up if it dies meanwhile.
//!
//! Closing a client's descriptor can take forever, and no signal ends that: a file may be on a file system
//! that its owner serves (FUSE), and a file watched by an epoll is closed under that epoll's lock, which its
//! user can hold. So each client is served by a thread with its own descriptor table
//! ([`heddle_sys::isolated::spawn_thread`]), which closes everything the client has sent when the request is
//! done and no lock of the engine is held. A thread that hangs costs its user's permit, and nothing else.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use heddle_steer::client::wire::{Call, Reply, receive, send};
use heddle_steer::engine::{Caller, Engine};
use heddle_steer::request::{Answer, Attachment, Error, ErrorKind, Request};

/// How long a client may be silent, and how long one message may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The link names of acceptable descriptors: `socket:[4711]`. A file's name begins with a slash.
const KINDS: [&str; 4] = ["socket:[", "anon_inode:[pidfd]", "pidfd:[", "anon_inode:bpf-map"];

/// The client being served.
struct Client<'a> {
    stream: &'a UnixStream,
    caller: Caller,
    /// How many descriptors may come with a request.
    max_fds: usize,
    /// Descriptors that were refused. Closed after the client has been notified.
    refused: RefCell<Vec<OwnedFd>>,
}

/// Serves a client until it disconnects, is silent for too long or violates the protocol.
pub fn serve(engine: &Engine, stream: &UnixStream, caller: Caller) {
    let max_fds = engine.max_descriptors(caller);
    let client = &Client { stream, caller, max_fds, refused: RefCell::default() };
    loop {
        match client.next() {
            Ok(Some((Call::Ask(request), fds))) => {
                if answer(engine, client, request, fds).is_err() {
                    return;
                }
            }
            Ok(Some((Call::Keep | Call::More, _))) => {
                refuse(stream, ErrorKind::Invalid, "there is nothing to keep");
            }
            Ok(None) => return,
            Err(error) => {
                // After a malformed message, the start of the next is unknown.
                let _ = send(stream, &Reply::Err(error), &[], PATIENCE);
                return;
            }
        }
    }
}

/// Sends a refusal to a client.
pub fn refuse(client: &UnixStream, kind: ErrorKind, why: &str) {
    let error = Error::new(kind, why);
    let _ = send(client, &Reply::Err(error), &[], Duration::from_millis(100));
}

/// Serves a request; an error if the client has gone.
fn answer(
    engine: &Engine,
    client: &Client<'_>,
    request: Request,
    fds: Vec<OwnedFd>,
) -> Result<(), Error> {
    let Client { stream, caller, .. } = *client;
    let what = describe(&request);
    let log = |text: &str| {
        if !what.is_empty() {
            eprintln!("heddled: user {}: {what}: {}", caller.uid, one_line(text));
        }
    };
    // So that the engine never drops the last copy, possibly under a lock. They are also needed to detach a
    // program from a group, if the client of an attachment has gone.
    let kept = fds.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>();
    let kept = match kept {
        Ok(kept) => kept,
        Err(error) => {
            let error = Error::system("no room for your descriptors", &error);
            return send(stream, &Reply::Err(error), &[], PATIENCE);
        }
    };
    let (reply, fds) = match engine.serve(caller, request, fds) {
        Ok((Answer::Attached(attachment), fds)) => {
            let id = attachment.id;
            offer(client, attachment, &fds).inspect_err(|error| {
                log(&format!("undone, {error}"));
                if let Err(error) = undo(engine, caller, id, &kept) {
                    eprintln!("heddled: attachment {id} cannot be undone: {error}");
                }
            })?;
            log(&format!("attachment {id}"));
            (Ok(Answer::Done), Vec::new())
        }
        Ok((answer, fds)) => {
            log("done");
            (Ok(answer), fds)
        }
        Err(error) => {
            log(&error.text);
            (Err(error), Vec::new())
        }
    };
    // A client that has its answer has its sockets to itself again.
    drop(kept);
    send(stream, &reply, &fds, PATIENCE)
}

/// Sends an attachment, which stays only if the client acknowledges it.
fn offer(client: &Client<'_>, attachment: Attachment, fds: &[OwnedFd]) -> Result<(), Error> {
    send(client.stream, &Reply::Ok(Answer::Attached(attachment)), fds, PATIENCE)?;
    match client.next()? {
        Some((Call::Keep, _)) => Ok(()),
        Some(_) => Err(Error::new(ErrorKind::Invalid, "the client asks for something else")),
        None => Err(Error::new(ErrorKind::NotFound, "the client is gone")),
    }
}

/// Detaches with `sockets`, of which the engine gets only copies.
fn undo(engine: &Engine, caller: Caller, id: u32, sockets: &[OwnedFd]) -> Result<(), Error> {
    let copies = sockets.iter().filter_map(|socket| socket.try_clone().ok()).collect();
    engine.serve(caller, Request::Detach { id }, copies).map(drop)
}

impl Client<'_> {
    /// Receives the next message, with the descriptors that came ahead of it ([`Call::More`]); `None` if the client
    /// has closed its side.
    ///
    /// # Errors
    /// If it is malformed, late, or has a descriptor that is neither a socket nor a process nor a map; if there are
    /// more than this client may send, or the messages together take too long.
    fn next(&self) -> Result<Option<(Call, Vec<OwnedFd>)>, Error> {
        let mut all: Vec<OwnedFd> = Vec::new();
        let (mut limit, mut begin) = (PATIENCE, None);
        loop {
            let Some((call, fds)) = receive::<Call>(self.stream, limit)? else { return Ok(None) };
            let is_last = !matches!(call, Call::More);
            let error = if is_last || !fds.is_empty() {
                fds.iter().find_map(descriptor_error)
            } else {
                Some(Error::new(ErrorKind::Invalid, "a message for descriptors that has none"))
            };
            all.extend(fds);
            if let Some(error) = error.or_else(|| self.too_many(all.len())) {
                self.refused.borrow_mut().extend(all);
                return Err(error);
            }
            if is_last {
                return Ok(Some((call, all)));
            }
            let begin = *begin.get_or_insert_with(Instant::now);
            limit = PATIENCE.saturating_sub(begin.elapsed());
        }
    }

    fn too_many(&self, fds: usize) -> Option<Error> {
        let (uid, max) = (self.caller.uid, self.max_fds);
        let text = || {
            format!(
                "more than {max} descriptors with a request: user {uid} may have no more executors; have the quota \
                 raised (`heddled --help`)"
            )
        };
        (fds > max).then(|| Error::new(ErrorKind::Denied, text()))
    }
}

/// Returns why a descriptor is refused; `None` if it is acceptable.
fn descriptor_error(fd: &OwnedFd) -> Option<Error> {
    // Reading the link name involves no user's file system.
    let name = fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()));
    let name = name.map(|name| name.to_string_lossy().into_owned());
    let name = match name {
        Ok(name) if KINDS.iter().any(|kind| name.starts_with(kind)) => return None,
        Ok(name) => name.chars().filter(|c| !c.is_control()).take(200).collect(),
        Err(error) => error.to_string(),
    };
    let text = format!("a descriptor of {name}, which is no socket, no process and no map");
    Some(Error::new(ErrorKind::Invalid, text))
}

/// Describes a request for the log; empty for those that change nothing.
fn describe(request: &Request) -> String {
    match request {
        Request::Attach { policy, hook, pid, .. } => {
            format!("attach {} at {hook} for process {pid}", one_line(&policy.name))
        }
        Request::AddExecutor { id, .. } => format!("add an executor to {id}"),
        Request::Replace { id, policy } => format!("replace {id} by {}", one_line(&policy.name)),
        Request::Detach { id } => format!("detach {id}"),
        Request::List { .. } | Request::Ended | Request::Stats { .. } | Request::Maps { .. } => {
            String::new()
        }
    }
}

/// Makes a client's text fit into one line of the log.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect()
}
