//! The enclave of a deployment: `heddle agent run`, as a process that outlives the command that starts it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use heddle_agent::guardian::{Answer, Enclaves, GuardianError, Request, ask};
use serde_json::Value;

use super::file::AgentSection;
use super::record::AgentRecord;
use super::state::enclave;

/// How long a guardian may take to end once it has given the threads back.
const ENDING: Duration = Duration::from_secs(30);

/// Starts the enclave `name`. Its messages go to `log`. Returns once an agent schedules the threads.
pub fn start(
    name: &str,
    agent: &AgentSection,
    service: &[String],
    class_map: Option<u32>,
    log: &Path,
) -> anyhow::Result<AgentRecord> {
    let messages = File::options().create(true).write(true).truncate(true).mode(0o600).open(log);
    let messages = messages.with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command.args(["agent", "run", "--json", "--name", name, "--policy", &agent.policy]);
    command.args(&agent.options).args(service);
    if let Some(id) = class_map {
        command.args(["--class-map", &id.to_string()]);
    }
    // A group of its own: Ctrl-C in the terminal is for the command that starts it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(messages).process_group(0);
    let mut child = command.spawn().context("cannot start `heddle agent run`")?;
    let mut line = String::new();
    let announced = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    announced.transpose().context("cannot read from `heddle agent run`")?;
    let record: Value = serde_json::from_str(&line).unwrap_or_default();
    let guardian = &record["enclave"]["guardian"];
    let Some(guardian) = guardian.as_u64().and_then(|pid| u32::try_from(pid).ok()) else {
        let _ = child.wait();
        bail!("the enclave cannot be started: {}", last_message(log));
    };
    Ok(AgentRecord {
        enclave: name.into(),
        guardian,
        guardian_began: record["enclave"]["guardian_began"].as_u64(),
        class_map,
    })
}

/// Returns what `heddle agent run` said last.
fn last_message(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let text = text.trim();
    let text = text.strip_prefix("heddle: ").unwrap_or(text);
    if text.is_empty() {
        "it ended without a message".into()
    } else {
        text.replace("\nheddle: ", "; ")
    }
}

/// Gives the enclave's threads back, and waits for the end of its guardian.
pub fn stop(name: &str) -> anyhow::Result<()> {
    match order(name, &Request::Stop) {
        Ok(Answer::Stopped { .. }) => {}
        Ok(other) => bail!("unexpected answer of the guardian of enclave `{name}`: {other:?}"),
        // It has ended in the meantime.
        Err(_) if enclave(name).is_none() => {}
        Err(error) => return Err(error.into()),
    }
    let begin = Instant::now();
    while enclave(name).is_some() {
        if begin.elapsed() > ENDING {
            bail!(
                "enclave `{name}` is stopped, but its guardian does not end (`heddle agent status {name}`)"
            );
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Replaces the policy of the enclave.
pub fn upgrade(name: &str, policy: &str) -> anyhow::Result<()> {
    match order(name, &Request::Upgrade { policy: Some(policy.into()) })? {
        Answer::Upgraded { .. } => Ok(()),
        other => bail!("unexpected answer of the guardian of enclave `{name}`: {other:?}"),
    }
}

fn order(name: &str, request: &Request) -> Result<Answer, GuardianError> {
    ask(&Enclaves::here().folder(name)?, request)
}
