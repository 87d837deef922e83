//! The guardian: the process that makes an enclave, starts its agent and its program, watches both, replaces agents
//! and gives threads back (`docs/agents/README.md` is for users; `docs/design/agent.md`, "Processes", explains the
//! design).
//!
//! - **G1** A guardian that ends, for whatever reason but SIGKILL, leaves no enclave, no agent, no folder, and all
//!   threads with the default scheduler. After SIGKILL, its agent does that; if the agent is killed, too, the
//!   cleaner process; and after that, the next command that reads the enclaves.
//! - **G2** A program never ends because its agent does: it goes on under the default scheduler, or another agent.
//! - **G3** A program's first instruction already runs in the enclave, and the program's exit status is the
//!   guardian's.
//! - **G4** Only an enclave's owner and root may give orders.

mod clean;
mod cleaner;
mod control;
pub mod cpus;
mod error;
mod event;
mod folder;
mod keeper;
mod kernel;
pub mod launch;
mod options;
mod process;
pub mod protocol;
mod record;
mod resize;
mod restart;
mod signals;
mod start;
mod target;
mod tasks;
mod upgrade;
mod watch;
mod work;

pub use crate::private::Lock;
pub use clean::{Cleaned, clean, cleaned};
pub use cleaner::cleaner_process;
pub use control::{Answer, Request, ask};
pub use error::GuardianError;
pub use folder::{EnclaveEntry, Enclaves, Folder};
pub use keeper::{BackendChoice, Backends, Keeper};
pub use kernel::{KernelBackends, open, states};
pub use options::{Options, Workload};
pub use record::{Agents, Kind, Record, Stage};
pub use start::Guardian;
pub use target::{JoinReport, JoinedProcess, Target};
pub use watch::Ending;
pub use work::agent_process;

/// The argument that marks an agent process.
pub const AGENT_PROCESS: &str = "agent-process";

/// The argument that marks the cleaner process.
pub const CLEANER_PROCESS: &str = "cleaner-process";
