//! `heddle ls`: what is attached.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heddle_metrics::{Cell, Mark, Table};
use heddle_steer::request::{Attachment, Stats, Status};
use serde::Serialize;

use super::connect::open;
use super::policy;
use super::refused;
use super::which::Which;
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle ls`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle ls
  heddle ls --port 53,853
  heddle ls --json | jq '.attachments[] | {id, policy, decisions}'

Executors are shown as there/all: one that is not there has closed its socket. Root sees all
attachments, others their own.")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Do not ask the daemon, even if it runs: for root.
    #[arg(long)]
    direct: bool,
}

/// An attachment with the counts that a list shows.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    attachment: Attachment,
    present: usize,
    decisions: u64,
    failed: u64,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    attachments: Vec<Listed>,
}

/// Lists.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let steering = open(args.direct)?;
    // One that ends between the two questions is not there.
    let listed = |attachment: Attachment| {
        let stats = steering.stats(attachment.id, 0).ok()?;
        Some(with_counts(attachment, &stats))
    };
    let meant = match args.which.is_empty() {
        true => steering.list().map_err(refused)?,
        false => args.which.all(&steering)?,
    };
    let attachments: Vec<Listed> = meant.into_iter().filter_map(listed).collect();
    if args.json {
        out::json(&Report { schema: 1, attachments })?;
    } else if attachments.is_empty() {
        out::text("Nothing is attached.\n")?;
    } else {
        out::text(&table(&attachments).to_text(out::style()))?;
    }
    Ok(Outcome::Done)
}

fn with_counts(attachment: Attachment, stats: &Stats) -> Listed {
    let present = stats.executors.iter().filter(|executor| executor.present).count();
    Listed { attachment, present, decisions: stats.decisions(), failed: stats.failed() }
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
    let mut all_present = true;
    for one in listed {
        let Attachment { id, hook, protocol, address, uid, pid, command, .. } = &one.attachment;
        let interface =
            one.attachment.interface.as_ref().map_or(String::new(), |name| format!(" on {name}"));
        let total = one.attachment.executors.len();
        let executors = Cell::text(format!("{}/{total}", one.present));
        all_present &= one.present == total;
        let (state, mark) = match &one.attachment.status {
            Status::Active => ("active".to_owned(), Mark::Plain),
            Status::Evicted(why) => (format!("evicted: {why}"), Mark::Bad),
        };
        table.push(vec![
            Cell::number(id.to_string()),
            Cell::text(hook.name()),
            Cell::text(format!("{protocol} {address}{interface}")),
            Cell::text(policy::display(&one.attachment.policy, &one.attachment.parameters)),
            if one.present == total { executors } else { executors.marked(Mark::Bad) },
            Cell::text(users.get(uid).cloned().unwrap_or_else(|| uid.to_string())),
            Cell::text(format!("{pid} {}", shortened(command))),
            Cell::text(since(one.attachment.since_ms)),
            Cell::number(one.decisions.to_string()),
            Cell::text(state).marked(mark),
        ]);
    }
    if !all_present {
        table.notes.push("Executors are missing: workers that restarted have new sockets. `heddle attach --follow` keeps up with them.".into());
    }
    table
}

fn shortened(command: &str) -> String {
    const MOST: usize = 32;
    match command.chars().count() {
        0..=MOST => command.into(),
        _ => command.chars().take(MOST - 3).chain("...".chars()).collect(),
    }
}

/// The names of users by number, as far as a file says.
fn users() -> BTreeMap<u32, String> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        Some((number.parse().ok()?, name.to_owned()))
    };
    passwd.lines().filter_map(user).collect()
}

/// How long ago that was, in its largest unit or two.
fn since(unix_ms: u64) -> String {
    let begin = UNIX_EPOCH + Duration::from_millis(unix_ms);
    let seconds = SystemTime::now().duration_since(begin).unwrap_or_default().as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86400, seconds / 3600 % 24),
    }
}
