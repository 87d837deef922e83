//! The systems: policies, the kernel's own choice, and late binding.

use std::fmt;
use std::str::FromStr;

use heddle_steer::policy::shipped_names;

/// What chooses the executor of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// The kernel, by the hash of the flow. Nothing is attached.
    Hash,
    /// A shipped policy, in the kernel.
    Policy(String),
    /// The policy `class` in the kernel, and threads that pull from class sockets in order of priority.
    Class,
    /// No choice: all threads receive on one socket.
    Shared,
}

/// The policies for the mixes. Those that steer by keys or locality are measured elsewhere.
const POLICIES: [&str; 6] = ["round-robin", "scan-avoid", "sita", "jsq", "jiq", "token"];

impl System {
    /// The policies of Syrup's Figure 6 and later ones, as far as they are available.
    #[must_use]
    pub fn all() -> Vec<System> {
        let there = |name: &&str| shipped_names().any(|shipped| shipped == *name);
        let policies = POLICIES.into_iter().filter(there).filter(|name| *name != "token");
        let mut all = vec![System::Hash];
        all.extend(policies.map(|name| System::Policy(name.into())));
        all.extend([System::Class, System::Shared]);
        all
    }

    /// Whether the server publishes its state in the executors' lines.
    #[must_use]
    pub fn uses_executor_lines(&self) -> bool {
        *self != System::Policy("jiq".into())
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            System::Hash => "hash",
            System::Policy(name) => name,
            System::Class => "class",
            System::Shared => "shared",
        })
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(name: &str) -> Result<System, String> {
        match name {
            "hash" => Ok(System::Hash),
            "class" => Ok(System::Class),
            "shared" => Ok(System::Shared),
            _ if POLICIES.contains(&name) && shipped_names().any(|shipped| shipped == name) => {
                Ok(System::Policy(name.into()))
            }
            _ => Err(format!(
                "no system `{name}`; there are hash, {}, class, shared",
                POLICIES.join(", ")
            )),
        }
    }
}
