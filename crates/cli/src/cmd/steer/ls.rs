//! `heddle steer ls`: lists attachments.

use std::collections::BTreeMap;
use std::fs;

use heddle_metrics::{Cell, Mark, Table};
use heddle_steer::hook::Hook;
use heddle_steer::request::{Attachment, Ended, Stats, Status};
use serde::Serialize;

use super::attachments::AttachmentSelector;
use super::connect::open;
use super::history::{self, age};
use super::live_sockets::LiveSockets;
use super::{policy, refused};
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle steer ls`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle steer ls
  heddle steer ls --port 53,853
  heddle steer ls --json | jq '.attachments[] | {id, policy, decisions}'

Executors are shown as present/total: an absent one has closed its socket. Attachments that ended
by themselves are listed for a day, or until another is attached there. Root sees all attachments,
other users their own.")]
pub struct Args {
    #[command(flatten)]
    which: AttachmentSelector,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Bypass the daemon, even if it runs (root only).
    #[arg(long)]
    direct: bool,
}

/// An attachment with its current counts.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    attachment: Attachment,
    present: usize,
    /// Sockets of the server that are not executors.
    #[serde(rename = "strangers")]
    unattached: usize,
    decisions: u64,
    failed: u64,
    moved: u64,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    attachments: Vec<Listed>,
    ended: Vec<Ended>,
}

/// Prints the list.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let steering = open(args.direct)?;
    // An attachment that ends between the two requests is left out.
    let listed = |attachment: Attachment| {
        let stats = steering.stats(attachment.id, 0).ok()?;
        Some(with_counts(attachment, stats))
    };
    let meant = match args.which.is_empty() {
        true => steering.list().map_err(refused)?,
        false => args.which.resolve(&steering)?,
    };
    let attachments: Vec<Listed> = meant.into_iter().filter_map(listed).collect();
    let ended = if args.which.is_empty() { history::ended(&steering) } else { Vec::new() };
    if args.json {
        out::json(&Report { schema: 1, attachments, ended })?;
        return Ok(Outcome::Done);
    }
    if attachments.is_empty() {
        out::text("Nothing is attached.\n")?;
    } else {
        out::text(&table(&attachments).to_text(out::style()))?;
    }
    for ended in &ended {
        out::text(&format!("{}\n", history::describe(ended)))?;
    }
    Ok(Outcome::Done)
}

fn with_counts(mut attachment: Attachment, mut stats: Stats) -> Listed {
    let live = LiveSockets::of(&attachment);
    live.relabel(&mut stats);
    let unattached = live.unattached(&stats);
    if attachment.hook == Hook::SocketSelect {
        (attachment.pid, attachment.command) =
            live.owner(&attachment).unwrap_or((0, String::new()));
    }
    attachment.executors = stats.executors.iter().map(|executor| executor.label.clone()).collect();
    let present = stats.executors.iter().filter(|executor| executor.present).count();
    let (decisions, failed, moved) = (stats.decisions(), stats.failed(), stats.moved());
    Listed { attachment, present, unattached, decisions, failed, moved }
}

fn table(listed: &[Listed]) -> Table {
    let head = [
        "id",
        "hook",
        "at",
        "policy",
        "executors",
        "user",
        "process",
        "since",
        "decisions",
        "state",
    ];
    let users = users();
    let mut table = Table::new("", head);
    for one in listed {
        let Attachment { id, hook, protocol, address, uid, pid, command, .. } = &one.attachment;
        let interface =
            one.attachment.interface.as_ref().map_or(String::new(), |name| format!(" on {name}"));
        let total = one.attachment.executors.len();
        let executors = Cell::text(format!("{}/{total}", one.present));
        let (state, mark) = match &one.attachment.status {
            Status::Active => ("active".to_owned(), Mark::Plain),
            Status::Evicted(why) => (format!("evicted: {why}"), Mark::Bad),
        };
        table.push(vec![
            Cell::number(id.to_string()),
            Cell::text(hook.name()),
            Cell::text(format!("{protocol} {address}{interface}")),
            Cell::text(policy::display(&one.attachment.policy, &one.attachment.parameters)),
            if one.unattached == 0 { executors } else { executors.marked(Mark::Bad) },
            Cell::text(users.get(uid).cloned().unwrap_or_else(|| uid.to_string())),
            Cell::text(process(*pid, command)),
            Cell::text(age(one.attachment.since_ms)),
            Cell::number(one.decisions.to_string()),
            Cell::text(state).marked(mark),
        ]);
    }
    table.notes.extend(listed.iter().filter_map(note));
    table
}

/// What to do about an attachment whose executors are not the server's sockets, if anything.
fn note(one: &Listed) -> Option<String> {
    let (id, total) = (one.attachment.id, one.attachment.executors.len());
    let gone = total - one.present;
    match (one.unattached, gone) {
        (0, 0) => None,
        (0, _) => Some(format!(
            "Attachment {id}: {gone} of {total} sockets were closed, and the server has no others: the policy's \
                choices go to the {} that remain. There is nothing to do.",
            one.present
        )),
        (unattached, _) => Some(format!(
            "Attachment {id}: {unattached} of the server's sockets are not executors, as after workers restart; \
                they get only what the kernel gives them. `heddle steer attach --follow` adds them within a \
                second; if none is running: `heddle steer detach {id}`, and attach again with --follow."
        )),
    }
}

fn process(pid: u32, command: &str) -> String {
    if pid == 0 { "none".into() } else { format!("{pid} {}", shortened(command)) }
}

fn shortened(command: &str) -> String {
    const MOST: usize = 32;
    match command.chars().count() {
        0..=MOST => command.into(),
        _ => command.chars().take(MOST - 3).chain("...".chars()).collect(),
    }
}

/// User names by number, from /etc/passwd.
fn users() -> BTreeMap<u32, String> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        Some((number.parse().ok()?, name.to_owned()))
    };
    passwd.lines().filter_map(user).collect()
}
