//! heddled's options and their defaults.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use heddle_steer::engine::{Quota, State};

const EXAMPLES: &str = "\
Examples:
  heddled                                   for root only
  heddled --group heddle                    for root and the members of group heddle
  heddled --everyone --max-attachments 4    for every user of the machine, four policies each
  heddled --group heddle --interface eth0   whose members may steer packets as they come from eth0
  heddled --share /etc/heddle/share.toml    is the broker of this share of CPUs, too
  heddled --deployments                     deploys root's files again when services restart
  heddled --evict-ns 5000 --evict-share 10  takes away what costs 5 us a decision, or a tenth of a CPU

Policies stay in place when heddled ends, also by SIGKILL; it finds them again. SIGTERM and SIGINT end it.
Who may do what, and what a hostile user can do: docs/daemon/heddled.md.";

/// Deploys steering policies for users other than root, and enforces their limits.
#[derive(Debug, Parser)]
#[command(name = "heddled", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Options {
    /// Where to listen; ignored if systemd passes a socket
    #[arg(long, value_name = "PATH", default_value = heddle_steer::client::SOCKET)]
    pub socket: PathBuf,
    /// Who may connect besides root: the members of this group (a name or a number)
    #[arg(long, conflicts_with = "everyone")]
    pub group: Option<String>,
    /// Let every user connect
    #[arg(long)]
    pub everyone: bool,
    /// Folder of the records of attachments
    #[arg(long, value_name = "FOLDER", default_value = "/run/heddle")]
    pub state: PathBuf,
    /// Folder in which programs and maps are pinned: on a BPF file system
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/bpf/heddle")]
    pub pins: PathBuf,
    /// Attachments of one user
    #[arg(long, value_name = "N", default_value_t = Quota::default().attachments)]
    pub max_attachments: usize,
    /// Executors of one user, all attachments together
    #[arg(long, value_name = "N", default_value_t = Quota::default().executors)]
    pub max_executors: usize,
    /// Memory of the maps of one user's policies, MiB
    #[arg(long, value_name = "MIB", default_value_t = Quota::default().map_bytes >> 20)]
    pub max_map_mib: u64,
    /// An interface whose packets users other than root may steer, in heddled's network namespace; may be
    /// repeated; none by default
    #[arg(long = "interface", value_name = "NAME")]
    pub interfaces: Vec<String>,
    /// Attachments of one user at one interface
    #[arg(long, value_name = "N", default_value_t = Quota::default().slots)]
    pub max_slots: usize,
    /// Addresses and ports of one user at one interface
    #[arg(long, value_name = "N", default_value_t = Quota::default().claims)]
    pub max_claims: usize,
    /// Limit for all users but root together, as a multiple of one user's attachments and map memory
    #[arg(long, value_name = "N", default_value_t = Quota::default().users)]
    pub max_users: usize,
    /// Connections of one user at a time
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub max_connections: usize,
    /// Evict a policy whose decisions take longer than this on average, nanoseconds, in two of four checks;
    /// 0: never
    #[arg(long, value_name = "NS", default_value_t = 20_000)]
    pub evict_ns: u32,
    /// Evict the costliest policy of a user whose policies together use more than this share of a CPU,
    /// percent
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    pub evict_share: u32,
    /// Interval of the checks, which judge run time and remove what is dead, milliseconds, plus or minus half
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(10..))]
    pub watch_ms: u32,
    /// How long each check counts run time if all policies are root's, milliseconds; with other users'
    /// policies it is always counted. Counting costs every BPF program on the machine two clock reads per run
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub sample_ms: u32,
    /// A file that describes a share of CPUs (`heddle share serve --help`): be its broker, for those who may connect;
    /// may be repeated
    #[arg(long = "share", value_name = "FILE")]
    pub shares: Vec<PathBuf>,
    /// Deploy what root has applied (`heddle apply`) again when a service or its workers restart: run `heddle apply
    /// --watch`, of the folder in which heddled is, in a child
    #[arg(long)]
    pub deployments: bool,
    /// Read a compiled policy from standard input, without any privileges, and write its content: heddled
    /// starts this itself
    #[arg(long, hide = true)]
    pub read_policy: bool,
}

impl Options {
    /// Returns the state that outlives heddled.
    pub fn state(&self) -> State {
        State::at(&self.state, &self.pins)
    }

    /// Returns the limits of one user.
    pub fn quota(&self) -> Quota {
        Quota {
            attachments: self.max_attachments,
            executors: self.max_executors,
            map_bytes: self.max_map_mib.saturating_mul(1 << 20),
            slots: self.max_slots,
            claims: self.max_claims,
            interfaces: self.interfaces.clone(),
            users: self.max_users,
        }
    }

    /// Returns the mean interval of the checks.
    pub fn watch(&self) -> Duration {
        Duration::from_millis(self.watch_ms.into())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn definitions_are_consistent() {
        super::Options::command().debug_assert();
    }
}
