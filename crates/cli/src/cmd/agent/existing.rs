//! Options that name running processes to move into an enclave.

use std::path::PathBuf;

use heddle_agent::guardian::Target;
use heddle_sys::processes;

use crate::exit::Usage;

/// At most one of these.
#[derive(clap::Args)]
#[group(id = "running", multiple = false, conflicts_with = "program")]
pub struct ExistingProcesses {
    /// A running process, with its descendants.
    #[arg(long)]
    pid: Option<u32>,
    /// All processes of a cgroup, such as /system.slice/nginx.service, and those that join it later.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// All processes of a running systemd unit, such as nginx, and those that it starts later.
    #[arg(long, value_name = "NAME")]
    unit: Option<String>,
}

impl ExistingProcesses {
    /// Returns the processes to move, if any were named.
    pub fn target(&self) -> Result<Option<Target>, Usage> {
        let folder = match (&self.cgroup, &self.unit) {
            (Some(path), _) => processes::cgroup(path),
            (_, Some(name)) => processes::unit(name),
            _ => return Ok(self.pid.map(Target::Pid)),
        };
        folder.map(|folder| Some(Target::Cgroup(folder))).map_err(Usage)
    }
}
