//! `heddle share ls`: the shares whose brokers run.

use std::path::{Path, PathBuf};

use heddle_broker::{QueryError, Report};
use heddle_metrics::{Cell, Table};
use serde_json::json;

use super::site::{self, Site};
use super::view;
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle share ls`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  heddle share ls
  heddle share ls share.toml
  heddle share ls --json | jq -r '.shares[].share.socket'

Without a file it lists the brokers of this user and of root that listen at the default places.")]
pub struct Args {
    /// Only the share that this file describes.
    file: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Lists shares.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let answers = match &args.file {
        Some(file) => {
            let site = Site::of(file)?;
            vec![
                site.find()
                    .map_or_else(|error| (site.own.clone(), Err(error)), |(at, it)| (at, Ok(it))),
            ]
        }
        None => site::all(),
    };
    let (mut shares, mut silent) = (Vec::new(), Vec::new());
    for (path, answer) in answers {
        match answer {
            Ok(report) => shares.push(report),
            // What a broker that was killed left behind.
            Err(QueryError::NoBroker { source, .. })
                if source.kind() != std::io::ErrorKind::PermissionDenied => {}
            Err(error) => silent.push(note(&path, &error)),
        }
    }
    match args.json {
        true => out::json(&json!({ "schema": 1, "shares": shares }))?,
        false => out::text(&text(&shares, silent))?,
    }
    Ok(Outcome::Done)
}

fn note(path: &Path, error: &QueryError) -> String {
    match error {
        QueryError::NoBroker { .. } => format!("{} is for other users", path.display()),
        other => other.to_string(),
    }
}

fn text(shares: &[Report], notes: Vec<String>) -> String {
    if shares.is_empty() && notes.is_empty() {
        return "No broker runs.\n".into();
    }
    let head = ["CPUs", "applications", "policy", "threads", "for", "file", "socket"];
    let mut table = Table::new("", head);
    for Report { share, apps, .. } in shares {
        table.push(vec![
            Cell::text(view::cpu_list(&share.cpus)),
            Cell::number(apps.len().to_string()),
            Cell::text(&share.policy),
            Cell::text(view::threads(share)),
            Cell::number(view::ms(share.uptime_ms)),
            Cell::text(&share.file),
            Cell::text(&share.socket),
        ]);
    }
    table.notes = notes;
    table.to_text(out::style())
}
