//! A policy on sockets, held only by this process: when it ends, the kernel chooses again.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use heddle_bpf::{Map, MapKind, MapSpec, MapView, Program, ProgramInfo};
use heddle_steer::hook::observe::{self, Observed};
use heddle_steer::hook::reuseport;
use heddle_steer::policy::{Maps, Object, read, shipped};

/// Why steering is impossible here; `None` if it is possible.
#[must_use]
pub fn privilege() -> Option<String> {
    let spec = MapSpec {
        name: "probe".into(),
        kind: MapKind::ReuseportSockets,
        key_size: 4,
        value_size: 8,
        entries: 1,
        read_only: false,
    };
    let error = Map::create(&spec).err()?;
    Some(format!("steering takes CAP_BPF and CAP_NET_ADMIN (run as root): {error}"))
}

/// A reuseport group with its root program and a policy. Dropping it detaches the policy.
pub struct Group {
    maps: Maps,
    root: Program,
    policy: Program,
    first: OwnedFd,
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

/// A shipped policy, by name.
///
/// # Errors
/// If there is no such policy.
pub fn policy(name: &str) -> io::Result<Object> {
    let file = shipped(name).ok_or_else(|| io::Error::other(format!("no policy `{name}`")))?;
    read(file).map_err(other)
}

impl Group {
    /// Lets the shipped policy `name` choose among `sockets`, in their order. They belong to this process or
    /// are copies of another's.
    ///
    /// # Errors
    /// Errors of loading and attaching; nothing is then attached.
    pub fn attach(name: &str, sockets: &[impl AsFd], kind: Observed) -> io::Result<Group> {
        let mut maps = Maps::new();
        let root = reuseport::load_root(&mut maps).map_err(other)?;
        let program = reuseport::load_policy(name, &policy(name)?, &mut maps).map_err(other)?;
        let first = sockets.first().ok_or_else(|| io::Error::other("no socket"))?;
        let first = first.as_fd().try_clone_to_owned()?;
        let mut group = Group { maps, root, policy: program, first };
        group.put_sockets(sockets, kind)?;
        reuseport::put_policy(&group.maps, &group.policy)?;
        group.root.attach_reuseport(group.first.as_fd())?;
        Ok(group)
    }

    fn put_sockets(&mut self, sockets: &[impl AsFd], kind: Observed) -> io::Result<()> {
        let mut observed = Vec::new();
        for (index, socket) in (0_u32..).zip(sockets) {
            reuseport::put_executor(&self.maps, index, socket.as_fd())?;
            observed.push((index, socket.as_fd(), kind));
        }
        observe::put_sockets(&mut self.maps, &observed).map_err(other)?;
        let executors = u32::try_from(sockets.len()).map_err(io::Error::other)?;
        match self.maps.get("hd_control") {
            Some(control) => control.update(&0_u32.to_ne_bytes(), &executors.to_ne_bytes()),
            None => Ok(()),
        }
    }

    /// Loads another policy for the same sockets without installing it.
    ///
    /// # Errors
    /// Errors of loading.
    pub fn load(&mut self, name: &str) -> io::Result<Program> {
        reuseport::load_policy(name, &policy(name)?, &mut self.maps).map_err(other)
    }

    /// Installs `program`: it decides from now on.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn replace(&self, program: &Program) -> io::Result<()> {
        reuseport::put_policy(&self.maps, program)
    }

    /// The executors' lines in this process's memory, if the policy reads them.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn lines(&self) -> io::Result<Option<MapView>> {
        self.maps.get("hd_lines").map(MapView::new).transpose()
    }

    /// The maps of the policy.
    #[must_use]
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The kernel's statistics of the root program; its run time includes the policy's.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn root_info(&self) -> io::Result<ProgramInfo> {
        self.root.info()
    }

    /// The kernel's statistics of the policy in its frame.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn policy_info(&self) -> io::Result<ProgramInfo> {
        self.policy.info()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails only if another program has replaced it.
        let _ = Program::detach_reuseport(self.first.as_fd());
    }
}
