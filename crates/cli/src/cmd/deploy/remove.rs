//! `heddle remove`: takes a deployment away.

use super::file::DeploymentFile;
use super::plan::removal;
use super::record::Records;
use super::service::ServiceProcesses;
use super::state::Current;
use super::{act::Executor, named, show};
use crate::cmd::steer::connect::open;
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle remove`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo heddle remove /etc/heddle/kv.toml
  sudo heddle remove kv
  sudo heddle remove kv --dry-run

The kernel chooses sockets and CPUs again, threads return to the default scheduler, and the service
goes on. The file need not exist any more.")]
pub struct Args {
    /// The deployment file, or the deployment's name.
    file: String,
    /// Print what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Succeed if there is no such deployment, as for a service that stops.
    #[arg(long)]
    if_applied: bool,
    /// Bypass the daemon, even if it runs (root only).
    #[arg(long)]
    direct: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Removes the deployment.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let records = Records::here()?;
    let _lock = records.lock()?;
    let record = match named(&records, &args.file) {
        Err(_) if args.if_applied => return Ok(Outcome::Done),
        record => record?,
    };
    let steering = open(args.direct)?;
    let deployment = record.deployment()?;
    let current = Current::of(&steering, &deployment, record.service, &[])?;
    let plan = removal(&record, &current);
    if !args.dry_run {
        let none = ServiceProcesses::default();
        let mut executor =
            Executor::new(&steering, &records, &deployment, None, &none, record.clone(), &plan);
        executor.record.complete = false;
        // What cannot be taken away stays recorded, and the next try takes it.
        for step in &plan.steps {
            executor.step(step)?;
            records.write(&executor.record)?;
        }
        records.remove(&record.name)?;
    }
    print(args, &plan, &deployment)
}

fn print(
    args: &Args,
    plan: &super::plan::Plan,
    deployment: &DeploymentFile,
) -> anyhow::Result<Outcome> {
    if args.json {
        return out::json(&show::json(plan, deployment, &[])).map(|()| Outcome::Done);
    }
    out::text(&show::text(plan, deployment, false))?;
    let would = if args.dry_run { "would be" } else { "is" };
    out::text(&format!("Deployment {} {would} removed.\n", deployment.name))?;
    Ok(Outcome::Done)
}
