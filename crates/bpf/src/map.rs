//! Maps: what programs and their users share.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::from_ref;

use libbpf_rs::libbpf_sys as sys;

use super::{c_name, check, open_pinned, own, pin, possible_cpus};
use heddle_sys::isolated::run_in_child;

/// The kinds of maps that Heddle makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapKind {
    /// Values by index, which user space may map into its memory ([`super::MapView`]).
    Array,
    /// The same, not mappable and one copy for each CPU.
    PerCpuArray,
    /// Values by key.
    Hash,
    /// Programs to jump to.
    Programs,
    /// Sockets of a reuseport group.
    ReuseportSockets,
    /// CPUs that packets are redirected to.
    Cpus,
    /// AF_XDP sockets.
    XdpSockets,
    /// Sockets that streams are redirected to.
    Sockets,
    /// The same by key.
    SocketHash,
    /// Records that programs write and [`super::Ring`] reads; `entries` are bytes, a power of two.
    RingBuffer,
    /// Values by kernel thread, which end with it.
    TaskStorage,
    /// Maps by index.
    ArrayOfMaps,
}

impl MapKind {
    const ALL: [(Self, u32); 12] = [
        (Self::Array, sys::BPF_MAP_TYPE_ARRAY),
        (Self::PerCpuArray, sys::BPF_MAP_TYPE_PERCPU_ARRAY),
        (Self::Hash, sys::BPF_MAP_TYPE_HASH),
        (Self::Programs, sys::BPF_MAP_TYPE_PROG_ARRAY),
        (Self::ReuseportSockets, sys::BPF_MAP_TYPE_REUSEPORT_SOCKARRAY),
        (Self::Cpus, sys::BPF_MAP_TYPE_CPUMAP),
        (Self::XdpSockets, sys::BPF_MAP_TYPE_XSKMAP),
        (Self::Sockets, sys::BPF_MAP_TYPE_SOCKMAP),
        (Self::SocketHash, sys::BPF_MAP_TYPE_SOCKHASH),
        (Self::RingBuffer, sys::BPF_MAP_TYPE_RINGBUF),
        (Self::TaskStorage, sys::BPF_MAP_TYPE_TASK_STORAGE),
        (Self::ArrayOfMaps, sys::BPF_MAP_TYPE_ARRAY_OF_MAPS),
    ];

    fn number(self) -> u32 {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or(0, |(_, number)| *number)
    }

    fn from_number(number: u32) -> Option<Self> {
        Self::ALL.iter().find(|(_, n)| *n == number).map(|(kind, _)| *kind)
    }
}

/// What a map is made from, and what the kernel says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// At most 15 bytes are kept.
    pub name: String,
    /// What it is.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// How many it can hold.
    pub entries: u32,
    /// Whether programs may only read it; with [`Map::freeze`] its values are constants to the verifier.
    pub read_only: bool,
}

/// A map.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    spec: MapSpec,
}

impl Map {
    /// Makes a map. Arrays that programs may write are mappable.
    pub fn create(spec: &MapSpec) -> io::Result<Self> {
        let mut flags = 0;
        if spec.kind == MapKind::Array {
            flags |= sys::BPF_F_MMAPABLE;
        }
        if spec.read_only {
            flags |= sys::BPF_F_RDONLY_PROG;
        }
        let opts = sys::bpf_map_create_opts {
            sz: size_of::<sys::bpf_map_create_opts>() as _,
            map_flags: flags,
            ..Default::default()
        };
        let name = c_name(&spec.name);
        let (kind, key, value) = (spec.kind.number(), spec.key_size, spec.value_size);
        // SAFETY: `name` and `opts` outlive the call, and `opts.sz` is the size of `opts`.
        let fd = own(unsafe {
            sys::bpf_map_create(kind, name.as_ptr(), key, value, spec.entries, &raw const opts)
        })?;
        Ok(Self { fd, spec: spec.clone() })
    }

    /// The map behind a descriptor, after asking the kernel what it is.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let info = info(fd.as_fd())?;
        let kind = MapKind::from_number(info.type_).ok_or_else(|| {
            io::Error::other(format!("a map of kind {} that Heddle does not know", info.type_))
        })?;
        let name = info
            .name
            .iter()
            .take_while(|c| **c != 0)
            .map(|c| char::from(c.cast_unsigned()))
            .collect();
        let read_only = info.map_flags & sys::BPF_F_RDONLY_PROG != 0;
        let (key_size, value_size, entries) = (info.key_size, info.value_size, info.max_entries);
        Ok(Self { fd, spec: MapSpec { name, kind, key_size, value_size, entries, read_only } })
    }

    /// The kernel's number for it.
    pub fn id(&self) -> io::Result<u32> {
        info(self.fd.as_fd()).map(|info| info.id)
    }

    /// The map of the kernel's number `id`, which is also what an [`MapKind::ArrayOfMaps`] tells of its values. Needs
    /// `CAP_SYS_ADMIN`.
    pub fn by_id(id: u32) -> io::Result<Self> {
        // SAFETY: takes a number only.
        Self::from_fd(own(unsafe { sys::bpf_map_get_fd_by_id(id) })?)
    }

    /// Opens a pinned map.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::from_fd(open_pinned(path)?)
    }

    /// Keeps the map in a BPF file system.
    pub fn pin(&self, path: &Path) -> io::Result<()> {
        pin(&self.fd, path)
    }

    /// What it is.
    #[must_use]
    pub fn spec(&self) -> &MapSpec {
        &self.spec
    }

    /// Another descriptor of the same map.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, spec: self.spec.clone() })
    }

    /// Bytes that the system call reads or writes for a value. A guess would have the kernel write beyond a buffer,
    /// so that the number of CPUs cannot be read (no descriptor left, say) is an error.
    fn value_bytes(&self) -> io::Result<usize> {
        let size = self.spec.value_size as usize;
        Ok(match self.spec.kind {
            MapKind::PerCpuArray => size.next_multiple_of(8) * possible_cpus()? as usize,
            // The kernel takes a descriptor and gives a cookie.
            _ => size,
        })
    }

    fn check_key(&self, key: &[u8]) -> io::Result<()> {
        let wanted = self.spec.key_size as usize;
        if key.len() == wanted {
            return Ok(());
        }
        let name = &self.spec.name;
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("map `{name}` has keys of {wanted} bytes, not {}", key.len()),
        ))
    }

    /// The value of `key`; `None` if there is none. For a per-CPU map the values of all possible CPUs, one after
    /// another.
    pub fn lookup(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.check_key(key)?;
        let mut value = vec![0; self.value_bytes()?];
        // SAFETY: `key` has the map's key size, and `value` all the bytes that the kernel writes (I2).
        let result = unsafe {
            sys::bpf_map_lookup_elem(
                self.fd.as_raw_fd(),
                key.as_ptr().cast(),
                value.as_mut_ptr().cast(),
            )
        };
        match check(result) {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the value of `key`.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.store(key, value, sys::BPF_ANY)
    }

    /// Sets the value of `key`, which must have none: false if it has one.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        match self.store(key, value, sys::BPF_NOEXIST) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn store(&self, key: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        self.check_key(key)?;
        let wanted = self.value_bytes()?;
        if value.len() != wanted {
            let name = &self.spec.name;
            let text = format!("map `{name}` has values of {wanted} bytes, not {}", value.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // SAFETY: `key` and `value` have the sizes that the kernel reads (I2).
        let result = unsafe {
            sys::bpf_map_update_elem(
                self.fd.as_raw_fd(),
                key.as_ptr().cast(),
                value.as_ptr().cast(),
                u64::from(flags),
            )
        };
        check(result).map(drop)
    }

    /// Puts a descriptor (of a socket, of a program, of a map) at `index`. Maps of reuseport sockets have values of
    /// eight bytes.
    pub fn put_fd(&self, index: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut value = vec![0; self.spec.value_size as usize];
        value[..4].copy_from_slice(&fd.as_raw_fd().to_ne_bytes());
        self.update(&index.to_ne_bytes(), &value)
    }

    /// Puts sockets, which strangers may keep locked, at their indices of a [`MapKind::Sockets`], where there must be
    /// none. What became of each is in the result: `EEXIST` if there is one, and the kernel's other errors.
    ///
    /// That takes the sockets' locks, and is done by [`run_in_child`], for `user`: by one child for all of them, so
    /// that locks which are let go one after another do not add up.
    ///
    /// # Errors
    /// Those of [`run_in_child`]. Some may be there then, and a child that was left behind may still put the one
    /// there that it waits for.
    pub fn insert_sockets(
        &self,
        user: u32,
        sockets: &[(u32, BorrowedFd<'_>)],
    ) -> io::Result<Vec<io::Result<()>>> {
        /// Bytes of the number of an error, 0 for none.
        const NUMBER: usize = size_of::<i32>();
        // In the child nothing may be wrong that takes a text to say.
        self.check_key(&[0; 4])?;
        let fds: Vec<_> =
            std::iter::once(self.fd.as_fd()).chain(sockets.iter().map(|(_, fd)| *fd)).collect();
        let mut value = vec![0; self.spec.value_size as usize];
        let mut errors = vec![0; sockets.len() * NUMBER];
        run_in_child(user, &fds, &mut errors, |errors| {
            for ((index, socket), error) in sockets.iter().zip(errors.chunks_exact_mut(NUMBER)) {
                value[..4].copy_from_slice(&socket.as_raw_fd().to_ne_bytes());
                let stored = self.store(&index.to_ne_bytes(), &value, sys::BPF_NOEXIST);
                let number = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
                error.copy_from_slice(&stored.map_or_else(number, |()| 0).to_ne_bytes());
            }
            Ok(())
        })?;
        let result = |error: &[u8]| match i32::from_ne_bytes(error.try_into().unwrap_or_default()) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        };
        Ok(errors.chunks_exact(NUMBER).map(result).collect())
    }

    /// Removes `key`; whether it was there.
    pub fn remove(&self, key: &[u8]) -> io::Result<bool> {
        self.check_key(key)?;
        // SAFETY: `key` has the map's key size.
        let result = unsafe { sys::bpf_map_delete_elem(self.fd.as_raw_fd(), key.as_ptr().cast()) };
        match check(result) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All keys. What is added or removed meanwhile may be missed or seen; linear in the size of the map.
    pub fn keys(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while keys.len() < self.spec.entries as usize {
            let mut next = vec![0; self.spec.key_size as usize];
            let last = keys.last().map_or(std::ptr::null(), |key| from_ref(&key[0]));
            // SAFETY: `last` is null, for the first key, or a key of the map's size; `next` has that size too.
            let result = unsafe {
                sys::bpf_map_get_next_key(
                    self.fd.as_raw_fd(),
                    last.cast(),
                    next.as_mut_ptr().cast(),
                )
            };
            match check(result) {
                Ok(_) => keys.push(next),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(keys)
    }

    /// No system call may change it from now on.
    pub fn freeze(&self) -> io::Result<()> {
        // SAFETY: takes a descriptor only.
        check(unsafe { sys::bpf_map_freeze(self.fd.as_raw_fd()) }).map(drop)
    }
}

fn info(fd: BorrowedFd<'_>) -> io::Result<sys::bpf_map_info> {
    let mut info = sys::bpf_map_info::default();
    let mut size = u32::try_from(size_of_val(&info)).unwrap_or(u32::MAX);
    // SAFETY: `info` is valid for `size` bytes of writing, and the kernel fills in no more than that.
    check(unsafe { sys::bpf_map_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut size) })?;
    Ok(info)
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Map> for OwnedFd {
    fn from(map: Map) -> Self {
        map.fd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_sys::isolated::children_made;
    use heddle_sys::locked::Locked;
    use std::net::UdpSocket;

    const USER: u32 = 11;

    fn sockets_map() -> Option<Map> {
        let (name, kind) = ("hd_test".into(), MapKind::Sockets);
        let spec = MapSpec { name, kind, key_size: 4, value_size: 8, entries: 8, read_only: false };
        let map = Map::create(&spec);
        map.inspect_err(|error| eprintln!("SKIPPED: no map of sockets here: {error}")).ok()
    }

    /// All that a user's sockets are locked for is one child's time.
    #[test]
    fn sockets_are_put_into_a_map_by_one_child_even_if_they_are_locked() {
        let Some(map) = sockets_map() else { return };
        // No other test of this program makes children.
        let before = children_made();
        let sockets = [(); 4].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let at = |indices: [u32; 4]| {
            let fds = indices.into_iter().zip(sockets.iter().map(|socket| socket.as_fd()));
            map.insert_sockets(USER, &fds.collect::<Vec<_>>())
        };
        let is_there = |index: u32| map.lookup(&index.to_ne_bytes()).unwrap().is_some();
        let put = at([0, 1, 1, 2]).unwrap();
        let errors: Vec<_> =
            put.iter().map(|one| one.as_ref().err().map(io::Error::kind)).collect();
        assert_eq!(errors, [None, None, Some(io::ErrorKind::AlreadyExists), None]);
        assert!(is_there(0) && is_there(1) && is_there(2) && !is_there(3));
        assert_eq!(children_made() - before, 1);
        let Ok(_locked) = Locked::new(sockets[0].try_clone().unwrap().into()) else {
            eprintln!("SKIPPED: needs userfaultfd, which is root's");
            return;
        };
        assert_eq!(at([4, 5, 6, 7]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        // Who waits for the first puts no other.
        assert!(!(4..8).any(is_there));
        assert_eq!(children_made() - before, 2);
    }
}
