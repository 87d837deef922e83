//! `heddle status`: what is in force of each deployment.

use std::fmt::Write as _;

use heddle_steer::client::Steering;
use heddle_steer::request::{Attachment, Status};
use serde::Serialize;

use super::file::DeploymentFile;
use super::record::{Record, Records};
use super::state::Current;
use super::{named, others};
use crate::cmd::steer::connect::open;
use crate::cmd::steer::history::age;
use crate::cmd::steer::policy::display;
use crate::cmd::steer::refused;
use crate::exit::Outcome;
use crate::out::{self, printable};

/// Options of `heddle status`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo heddle status
  sudo heddle status /etc/heddle/kv.toml
  sudo heddle status kv --json | jq '.deployments[].hooks'

The exit code is 1 if a hook of a deployment has nothing in force, for scripts that watch. For more
of each hook: heddle steer stats ID, heddle agent status NAME.")]
pub struct Args {
    /// Only this deployment: its file or its name.
    file: Option<String>,
    /// Bypass the daemon, even if it runs (root only).
    #[arg(long)]
    direct: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct DeploymentView {
    name: String,
    file: std::path::PathBuf,
    service: String,
    /// Whether the service runs; otherwise why not.
    is_running: bool,
    absent: Option<String>,
    is_complete: bool,
    is_watched: bool,
    since_ms: u64,
    hooks: Vec<HookView>,
    problems: std::collections::BTreeMap<String, String>,
}

#[derive(Serialize)]
struct HookView {
    section: String,
    hook: String,
    policy: String,
    /// What it steers, or whose threads it schedules.
    target: String,
    /// `active`, `absent`, or `evicted`.
    state: &'static str,
    why: Option<String>,
    attachment: Option<u32>,
    counts: Option<Counts>,
}

#[derive(Serialize)]
struct Counts {
    executors: usize,
    present: usize,
    decisions: u64,
    failed: u64,
}

impl HookView {
    fn is_active(&self) -> bool {
        self.state == "active"
    }
}

/// Shows deployments.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let records = Records::here()?;
    let selected = match &args.file {
        Some(which) => vec![named(&records, which)?],
        None => records.list()?,
    };
    let steering = open(args.direct)?;
    let view = |record: &Record| view(&records, &steering, record);
    let views = selected.iter().map(view).collect::<anyhow::Result<Vec<_>>>()?;
    if args.json {
        out::json(&serde_json::json!({ "schema": 1, "deployments": views }))?;
    } else if views.is_empty() {
        out::text("There are no deployments.\n")?;
    } else {
        out::text(&views.iter().map(text).collect::<Vec<_>>().join("\n"))?;
    }
    let is_fine =
        |view: &DeploymentView| view.is_complete && view.hooks.iter().all(HookView::is_active);
    Ok(if views.iter().all(is_fine) { Outcome::Done } else { Outcome::Program(1) })
}

fn view(records: &Records, steering: &Steering, record: &Record) -> anyhow::Result<DeploymentView> {
    let file = record.deployment()?;
    let others = others(records, &record.name)?;
    let current = Current::of(steering, &file, record.service, &others)?;
    let mut hooks = Vec::new();
    for (index, section) in file.steer.iter().enumerate() {
        hooks.extend(steer_views(steering, record, &file, index, &current)?);
        debug_assert!(
            hooks.last().is_some_and(|hook| hook.section == section.name),
            "one at least"
        );
    }
    hooks.extend(agent_view(record, &file, &current));
    Ok(DeploymentView {
        name: record.name.clone(),
        file: record.file.clone(),
        service: file.service.to_string(),
        is_running: current.processes.is_ok(),
        absent: current.processes.as_ref().err().cloned(),
        is_complete: record.complete,
        is_watched: records.is_watched(),
        since_ms: record.since_ms,
        hooks,
        problems: record.problems.clone(),
    })
}

/// One view for each attachment of a section, or one that says that there is none.
fn steer_views(
    steering: &Steering,
    record: &Record,
    file: &DeploymentFile,
    index: usize,
    current: &Current,
) -> anyhow::Result<Vec<HookView>> {
    let section = &file.steer[index];
    let recorded = record.attachments.iter().filter(|one| one.section == section.name);
    let mut views = Vec::new();
    for one in recorded {
        if let Some(attachment) = current.attachment(one.id) {
            views.push(attached(steering, &section.name, &one.target, attachment)?);
        }
    }
    if views.is_empty() {
        let why = match &current.targets[index] {
            Err(why) => why.clone(),
            Ok(_) => "nothing is attached: apply the file again, or wait for the watch".into(),
        };
        views.push(HookView {
            section: section.name.clone(),
            hook: section.hook().to_string(),
            policy: display(&section.policy.name, &section.policy.parameters),
            target: section.selector.to_string(),
            state: "absent",
            why: Some(why),
            attachment: None,
            counts: None,
        });
    }
    Ok(views)
}

fn attached(
    steering: &Steering,
    section: &str,
    target: &str,
    attachment: &Attachment,
) -> anyhow::Result<HookView> {
    let stats = steering.stats(attachment.id, 0).map_err(refused)?;
    let (state, why) = match &attachment.status {
        Status::Active => ("active", None),
        Status::Evicted(why) => ("evicted", Some(why.clone())),
    };
    let counts = Counts {
        executors: stats.executors.len(),
        present: stats.executors.iter().filter(|one| one.present).count(),
        decisions: stats.decisions(),
        failed: stats.failed(),
    };
    Ok(HookView {
        section: section.into(),
        hook: attachment.hook.to_string(),
        policy: display(&attachment.policy, &attachment.parameters),
        target: target.into(),
        state,
        why,
        attachment: Some(attachment.id),
        counts: Some(counts),
    })
}

fn agent_view(record: &Record, file: &DeploymentFile, current: &Current) -> Option<HookView> {
    let agent = file.agent.as_ref()?;
    let is_ours = |guardian: u32| record.agent.as_ref().is_some_and(|it| it.guardian == guardian);
    let enclave = current.enclave.as_ref().filter(|enclave| is_ours(enclave.guardian));
    let (state, why) = match enclave {
        Some(enclave) if enclave.is_active => ("active", None),
        Some(_) => ("absent", Some("its agent has ended, and its threads were given back".into())),
        None => (
            "absent",
            Some(current.processes.as_ref().err().cloned().unwrap_or_else(|| {
                "there is no enclave: apply the file again, or wait for the watch".into()
            })),
        ),
    };
    Some(HookView {
        section: "agent".into(),
        hook: "agent".into(),
        policy: enclave.map_or_else(|| agent.policy.clone(), |enclave| enclave.policy.clone()),
        target: format!("threads of {}, enclave {}", file.service, record.name),
        state,
        why,
        attachment: None,
        counts: None,
    })
}

fn text(view: &DeploymentView) -> String {
    let watched = if view.is_watched { "watched" } else { "not watched" };
    let mut text = format!(
        "{}: {}, for {}, {watched} ({})\n",
        view.name,
        printable(&view.service),
        age(view.since_ms),
        printable(&view.file.display().to_string())
    );
    // Writing to a string cannot fail.
    if let Some(why) = &view.absent {
        let _ = writeln!(text, "  service: absent: {}", printable(why));
    }
    for hook in &view.hooks {
        let HookView { section, hook, policy, target, state, attachment, counts, why } = hook;
        let _ = write!(text, "  {section} ({hook}): {state}: {policy}, {target}");
        if let Some(id) = attachment {
            let _ = write!(text, ", attachment {id}");
        }
        if let Some(Counts { executors, present, decisions, failed }) = counts {
            let _ = write!(
                text,
                ": {present} of {executors} executors, {decisions} decisions, {failed} failed"
            );
        }
        match why.as_ref().filter(|_| view.absent.is_none()) {
            Some(why) => {
                let _ = writeln!(text, ": {}", printable(why));
            }
            None => text.push('\n'),
        }
    }
    for (section, problem) in &view.problems {
        let _ = writeln!(text, "  problem: {section}: {}", printable(problem));
    }
    if !view.is_complete {
        text += "  problem: the last `heddle apply` was cut short; apply it again, or remove it\n";
    }
    text
}
