//! `heddle steer detach`: ends attachments, so that the kernel chooses again.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use heddle_bpf::{Map, Program};
use heddle_steer::client::Steering;
use heddle_steer::hook::reuseport::EXECUTORS;
use heddle_steer::process::serving;
use heddle_steer::request::{Attachment, Error, ErrorKind, Request};
use heddle_sys::isolated::run_in_child;
use rustix::net::sockopt::socket_cookie;
use serde_json::json;

use super::attachments::AttachmentSelector;
use super::connect::open;
use super::refused;
use crate::exit::{Outcome, Usage};
use crate::out;

/// Options of `heddle steer detach`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle steer detach 1
  heddle steer detach --port 8000
  heddle steer detach --port 53,853 --protocol udp
  heddle steer detach --all

The sockets stay unchanged and no input is lost: from the next one on, the kernel chooses by its
hash.")]
pub struct Args {
    #[command(flatten)]
    which: AttachmentSelector,
    /// All attachments of the caller; for root, of all users.
    #[arg(long, conflicts_with_all = ["ids", "pid", "ports", "protocols", "addresses"])]
    all: bool,
    /// Bypass the daemon, even if it runs (root only).
    #[arg(long)]
    direct: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// What detaching achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DetachOutcome {
    /// The program is off the sockets, which was verified.
    Off,
    /// The policy is gone and the kernel chooses; an empty program stays on the sockets until the last one closes.
    Emptied,
}

/// Detaches, and prints what that achieved.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let steering = open(args.direct)?;
    let selected = match args.all {
        true => steering.list().map_err(refused)?,
        false if args.which.is_empty() => {
            let text = "no attachment selected: give its number (`heddle steer ls`), --port, --protocol, \
                --address, --pid or --all";
            return Err(Usage(text.into()).into());
        }
        false => args.which.resolve(&steering)?,
    };
    let mut done = Vec::new();
    for attachment in selected {
        let end = one(&steering, &attachment).map_err(refused)?;
        if !args.json {
            out::text(&text(&attachment, end))?;
        }
        done.push(json!({ "id": attachment.id, "end": end }));
    }
    if args.json {
        out::json(&json!({ "schema": 1, "detached": done }))?;
    } else if done.is_empty() {
        out::text("Nothing was attached.\n")?;
    }
    Ok(Outcome::Done)
}

fn text(attachment: &Attachment, end: DetachOutcome) -> String {
    let Attachment { id, protocol, address, .. } = attachment;
    match end {
        DetachOutcome::Off => {
            format!("Detached {id}: at {protocol} {address} the kernel chooses again.\n")
        }
        DetachOutcome::Emptied => format!(
            "Detached {id}: at {protocol} {address} the kernel chooses again. No socket could be copied, so an \
                empty program that decides nothing stays on the sockets until the last one closes.\n"
        ),
    }
}

/// Ends one attachment.
pub fn one(steering: &Steering, attachment: &Attachment) -> Result<DetachOutcome, Error> {
    let sockets = sockets(steering, attachment);
    let copies = |sockets: &[OwnedFd]| {
        let copies = sockets.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>();
        copies.map_err(|error| Error::system("cannot copy a descriptor", &error))
    };
    let given = copies(&sockets)?;
    match steering.serve(Request::Detach { id: attachment.id }, given) {
        // The server ended in the meantime.
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(DetachOutcome::Off),
        result => result?,
    };
    if attachment.interface.is_some() {
        return Ok(DetachOutcome::Off);
    }
    // In a child: the socket's owner may hold its lock.
    let take_off = |socket: BorrowedFd<'_>| {
        run_in_child(0, &[socket], &mut [], |_| Program::detach_reuseport(socket))
    };
    let off = |socket: &OwnedFd| match take_off(socket.as_fd()) {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(()) => true,
    };
    Ok(if !sockets.is_empty() && sockets.iter().all(off) {
        DetachOutcome::Off
    } else {
        DetachOutcome::Emptied
    })
}

/// Copies the attachment's executors as far as possible: from its process, else from any. The same address may
/// belong to other sockets in another network namespace, so the kernel's cookies identify the right ones.
fn sockets(steering: &Steering, attachment: &Attachment) -> Vec<OwnedFd> {
    let cookies = cookies(steering, attachment.id).unwrap_or_default();
    let ours = |copy: &OwnedFd| {
        cookies.as_ref().is_none_or(|ours| socket_cookie(copy).is_ok_and(|one| ours.contains(&one)))
    };
    let of = |pid| {
        let mut found = serving(pid, attachment.port()).unwrap_or_default();
        found.retain(|socket| socket.address.to_string() == attachment.address);
        let copies = found.iter().filter_map(|socket| socket.copy().ok());
        copies.filter(ours).collect::<Vec<_>>()
    };
    let own = of(Some(attachment.pid));
    if own.is_empty() && cookies.is_some() { of(None) } else { own }
}

/// The cookies in the executor map; `None` if the daemon does not give it to this user.
fn cookies(steering: &Steering, id: u32) -> Result<Option<BTreeSet<u64>>, Error> {
    let maps = steering.maps(id)?;
    let Some((info, fd)) = maps.into_iter().find(|(info, _)| info.name == EXECUTORS) else {
        return Ok(None);
    };
    let map = Map::from_fd(fd).map_err(|error| Error::system("cannot use a map", &error))?;
    let at = |index: u32| map.lookup(&index.to_ne_bytes()).ok().flatten();
    let cookie = |value: Vec<u8>| value.try_into().map(u64::from_ne_bytes).ok();
    Ok(Some((0..info.entries).filter_map(at).filter_map(cookie).collect()))
}
