//! The guardian: the process that makes an enclave, starts its agent and its program, watches both, replaces agents and gives
//! threads back (`docs/agents/README.md` for users, `docs/design/agent.md`, "Processes", for why).
//!
//! - **G1** A guardian that ends, for whatever reason but SIGKILL, leaves no enclave, no agent, no folder, and all threads with the default
//!   scheduler. After SIGKILL its agent does that; if that is killed, too, a process that waits for nothing else, and after that one's
//!   end the next command that looks.
//! - **G2** A program is never ended because its agent is: it goes on under the default scheduler, or another agent.
//! - **G3** A program's first instruction runs in the enclave already, and its exit status is the guardian's.
//! - **G4** Only an enclave's owner and root are obeyed.

mod clean;
mod cleaner;
mod control;
pub mod cpus;
mod error;
mod event;
mod folder;
mod here;
mod keeper;
pub mod launch;
mod options;
mod process;
mod record;
mod restart;
mod signals;
mod start;
pub mod talk;
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
pub use folder::{Enclaves, Folder, Listed};
pub use here::{Here, open, states};
pub use keeper::{Backends, Keeper, Wanted};
pub use options::{Options, What};
pub use record::{Agents, Kind, Record, Stage};
pub use start::Guardian;
pub use target::{Taken, TakenProcess, Target};
pub use watch::Ending;
pub use work::agent_process;

/// The argument by which an agent process is known among others.
pub const AGENT_PROCESS: &str = "agent-process";

/// The argument by which the process that cleans up is known among others.
pub const CLEANER_PROCESS: &str = "cleaner-process";
