//! What heddled can be told, and what it assumes.

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
  heddled --evict-ns 5000 --evict-share 10  takes away what costs 5 us a decision, or a tenth of a CPU

Policies stay in place when heddled ends, also by SIGKILL; it finds them again. SIGTERM and SIGINT end it.
Who may do what, and what a hostile user can do: docs/daemon/heddled.md.";

/// Deploys steering policies for users who are not root, and keeps them within bounds.
#[derive(Debug, Parser)]
#[command(name = "heddled", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Options {
    /// Where to listen; not used when systemd hands over a socket
    #[arg(long, value_name = "PATH", default_value = heddle_steer::client::SOCKET)]
    pub socket: PathBuf,
    /// Who may connect beside root: the members of this group (a name or a number)
    #[arg(long, conflicts_with = "everyone")]
    pub group: Option<String>,
    /// Everybody may connect
    #[arg(long)]
    pub everyone: bool,
    /// Where the records of attachments are
    #[arg(long, value_name = "FOLDER", default_value = "/run/heddle")]
    pub state: PathBuf,
    /// Where programs and maps are pinned: on a BPF file system
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
    /// An interface at whose packets users other than root may put policies, in the network namespace of heddled; may be
    /// given several times, and none is open otherwise
    #[arg(long = "interface", value_name = "NAME")]
    pub interfaces: Vec<String>,
    /// Attachments of one user at one interface
    #[arg(long, value_name = "N", default_value_t = Quota::default().slots)]
    pub max_slots: usize,
    /// Addresses and ports of one user at one interface
    #[arg(long, value_name = "N", default_value_t = Quota::default().claims)]
    pub max_claims: usize,
    /// How many times the attachments and the map memory of one user all users but root may have together
    #[arg(long, value_name = "N", default_value_t = Quota::default().users)]
    pub max_users: usize,
    /// Connections of one user at a time
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub max_connections: usize,
    /// Takes a policy away that takes longer than this for a decision, nanoseconds, in two of four looks; 0: never
    #[arg(long, value_name = "NS", default_value_t = 20_000)]
    pub evict_ns: u32,
    /// The same for the costliest of a user whose policies together take more than this of a CPU, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    pub evict_share: u32,
    /// How often run time is judged and what is dead is removed, milliseconds, give or take half
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(10..))]
    pub watch_ms: u32,
    /// How long run time is counted at each look where all policies are root's, milliseconds; with those of others it is counted
    /// all the time. It costs every BPF program of the machine two readings of the clock a run
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub sample_ms: u32,
    /// Reads a compiled policy from standard input, with no rights at all, and writes what it consists of: what heddled
    /// starts for itself
    #[arg(long, hide = true)]
    pub read_policy: bool,
}

impl Options {
    /// Where what outlives heddled is kept.
    pub fn state(&self) -> State {
        State::at(&self.state, &self.pins)
    }

    /// What one user may have.
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

    /// The time between two looks.
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
