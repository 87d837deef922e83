//! `heddle apply`: makes what is in force equal to a file.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use heddle_core::Ns;
use heddle_steer::client::Steering;
use serde_json::json;

use super::act::Executor;
use super::file::DeploymentFile;
use super::record::{Record, Records, RecordsLock};
use super::{Comparison, show, usage, watch};
use crate::cmd::agent::time;
use crate::cmd::steer::connect::open;
use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle apply`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo heddle apply /etc/heddle/kv.toml
  heddle apply kv.toml --dry-run --explain
  heddle apply kv.toml --watch

  # kv.toml
  [service]
  unit = \"kv\"                # or cgroup, command, port, pid
  [[steer]]
  name = \"requests\"
  policy = \"scan-avoid\"
  port = 8000
  protocol = \"udp\"
  [agent]
  policy = \"priority:check=1ms\"
  cpus = \"2-7\"
  class-map = \"requests\"
  class = \"be=work:3\"

The service is neither changed nor restarted. All of the file is applied, or nothing; applying it
again changes nothing. `heddle diff FILE` compares, `heddle status` shows, `heddle remove FILE`
undoes. heddled --deployments deploys root's again when a service restarts; --watch does so in the
foreground. docs/deploy.md is the manual.")]
pub struct Args {
    /// The deployment file.
    #[arg(required_unless_present = "watch")]
    file: Option<PathBuf>,
    /// Print what would be done, and do nothing.
    #[arg(long, conflicts_with = "watch")]
    dry_run: bool,
    /// Print why, and what the service notices, with each step.
    #[arg(long)]
    explain: bool,
    /// Wait this long for the service and its sockets, such as 10s: it may be starting.
    #[arg(long, value_name = "TIME", value_parser = time::parse, conflicts_with = "dry_run")]
    wait: Option<Ns>,
    /// Keep running and deploy again when a service or its workers restart. Without a file: all that was
    /// applied. Ctrl-C leaves everything in place.
    #[arg(long)]
    watch: bool,
    /// End with the standard input, as heddled's child.
    #[arg(long, hide = true, requires = "watch")]
    until_input_ends: bool,
    /// Bypass the daemon, even if it runs (root only).
    #[arg(long)]
    direct: bool,
    /// Print one JSON object instead of text.
    #[arg(long, conflicts_with = "watch")]
    json: bool,
}

/// Applies the file, and watches it if asked to.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let records = Records::here()?;
    if let Some(path) = &args.file {
        let wanted = DeploymentFile::read(path)?;
        check_user(&wanted)?;
        let steering = open(args.direct)?;
        match args.dry_run {
            true => return dry_run(args, &records, &wanted, &steering),
            false => {
                if !apply(args, &records, &wanted, &steering)? {
                    return Ok(Outcome::Interrupted);
                }
            }
        }
    }
    match args.watch {
        true => watch::run(&records, args.direct, args.until_input_ends),
        false => Ok(Outcome::Done),
    }
}

fn dry_run(
    args: &Args,
    records: &Records,
    wanted: &DeploymentFile,
    steering: &Steering,
) -> anyhow::Result<Outcome> {
    let Comparison { current, plan, .. } = Comparison::of(steering, records, wanted)?;
    if args.json {
        out::json(&show::json(&plan, wanted, &current.notes))?;
    } else {
        out::text(&show::text(&plan, wanted, args.explain))?;
        current.notes.iter().for_each(|note| eprintln!("Note: {note}"));
        if plan.steps.is_empty() && plan.absent.is_empty() {
            out::text(&format!("Deployment {}: nothing would change.\n", wanted.name))?;
        }
    }
    refuse_absent(&plan.absent, wanted).map(|()| Outcome::Done)
}

/// Refuses what takes root before anything is done.
fn check_user(wanted: &DeploymentFile) -> anyhow::Result<()> {
    if let Some(agent) = &wanted.agent
        && !rustix::process::geteuid().is_root()
    {
        bail!(
            "{}:{}: [agent] takes root, since it schedules threads: run this as root, or remove the table",
            wanted.path.display(),
            agent.line
        );
    }
    Ok(())
}

/// All or nothing: what a section applies to must be there.
fn refuse_absent(absent: &[(String, String)], wanted: &DeploymentFile) -> anyhow::Result<()> {
    let Some((section, why)) = absent.first() else { return Ok(()) };
    let path = wanted.path.display();
    match wanted.steer.iter().find(|one| one.name == *section) {
        Some(one) => bail!("{path}:{}: `{section}`: {why}", one.line),
        None => bail!("{path}: `{section}`: {why}"),
    }
}

/// Compares under the lock; again and again if the service is waited for.
fn compare_when_ready(
    args: &Args,
    records: &Records,
    wanted: &DeploymentFile,
    steering: &Steering,
    stop: &AtomicBool,
) -> anyhow::Result<(RecordsLock, Comparison)> {
    let wait = args.wait.map_or(Duration::ZERO, |wait| Duration::from_nanos(wait.0));
    let begin = Instant::now();
    loop {
        let lock = records.lock()?;
        let comparison = Comparison::of(steering, records, wanted)?;
        let is_over = stop.load(Ordering::Relaxed) || begin.elapsed() >= wait;
        if comparison.plan.absent.is_empty() || is_over {
            return Ok((lock, comparison));
        }
        drop(lock);
        sleep(Duration::from_millis(100));
    }
}

/// Applies the file. Returns whether that was not interrupted.
fn apply(
    args: &Args,
    records: &Records,
    wanted: &DeploymentFile,
    steering: &Steering,
) -> anyhow::Result<bool> {
    let stop = interrupt::flag()?;
    let (_lock, comparison) = compare_when_ready(args, records, wanted, steering, &stop)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(false);
    }
    let Comparison { record, old, current, plan } = comparison;
    refuse_absent(&plan.absent, wanted)?;
    let processes = current.processes.as_ref().map_err(usage)?;
    let begin = Instant::now();
    let before = record.clone();
    let started = starting(wanted, record, &current);
    let mut executor =
        Executor::new(steering, records, wanted, old.as_ref(), processes, started, &plan);
    let done = executor.all(&plan, &stop);
    if !matches!(done, Ok(true)) {
        restore(records, before, executor.record)?;
        return done;
    }
    let mut record = executor.record;
    record.service = wanted.service.identity(processes);
    (record.text, record.policies) = (wanted.text.clone(), wanted.policies());
    record.complete = true;
    record.problems.clear();
    records.write(&record)?;
    if args.json {
        let mut shown = show::json(&plan, wanted, &current.notes);
        shown["took_ms"] = json!(begin.elapsed().as_secs_f64() * 1e3);
        shown["attachments"] = json!(record.attachments);
        shown["enclave"] = json!(record.agent.map(|agent| agent.enclave));
        return out::json(&shown).map(|()| true);
    }
    out::text(&show::text(&plan, wanted, args.explain))?;
    current.notes.iter().for_each(|note| eprintln!("Note: {note}"));
    let name = &wanted.name;
    let text = match plan.steps.len() {
        0 => format!("Deployment {name}: nothing changed.\n"),
        _ => format!(
            "Deployment {name} is in place. See: heddle status {name}. Undo: heddle remove {name}.\n"
        ),
    };
    out::text(&text)?;
    if !args.watch && !records.is_watched() {
        let who = match rustix::process::geteuid().is_root() {
            true => "heddled --deployments, or heddle apply --watch",
            false => "heddle apply --watch (heddled watches root's deployments)",
        };
        out::text(&format!(
            "If the service restarts, apply it again; or let it be watched: {who}.\n"
        ))?;
    }
    Ok(true)
}

/// Returns the record to start from: of the text before, if there is one.
fn starting(
    wanted: &DeploymentFile,
    record: Option<Record>,
    current: &super::state::Current,
) -> Record {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut record = record.unwrap_or_else(|| Record {
        schema: 1,
        name: wanted.name.clone(),
        file: wanted.path.clone(),
        text: wanted.text.clone(),
        policies: wanted.policies(),
        service: super::service::ServiceIdentity::default(),
        complete: false,
        since_ms: u64::try_from(now).unwrap_or(u64::MAX),
        attachments: Vec::new(),
        agent: None,
        problems: std::collections::BTreeMap::new(),
    });
    record.attachments.retain(|one| current.attachment(one.id).is_some());
    record.complete = false;
    record
}

/// Writes what remains after a failure: the record from before, with the attachments that are there.
fn restore(records: &Records, before: Option<Record>, now: Record) -> anyhow::Result<()> {
    match before {
        Some(before) => {
            records.write(&Record { attachments: now.attachments, agent: now.agent, ..before })
        }
        None if now.attachments.is_empty() && now.agent.is_none() => records.remove(&now.name),
        // Something could not be undone: `heddle remove` tries again.
        None => records.write(&now),
    }
}
