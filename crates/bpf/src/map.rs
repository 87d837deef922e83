//! Maps: memory shared by programs and user space.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::from_ref;

use libbpf_rs::libbpf_sys as sys;

use super::{c_name, check, open_pinned, own, pin, possible_cpus};
use heddle_sys::isolated::run_in_child;

/// The kinds of maps that Heddle uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapKind {
    /// Values by index, which user space may map into its memory ([`super::MapView`]).
    Array,
    /// The same, with a copy for each CPU, and not mappable.
    PerCpuArray,
    /// Values by key.
    Hash,
    /// Values by key, in memory that is allocated as they are inserted. The kernel reports it as a [`MapKind::Hash`].
    GrowingHash,
    /// Values by key; a new one replaces one of the least recently used when it is full.
    LruHash,
    /// Values by prefix: a number of bits, then the bits. A lookup finds the longest one.
    Prefixes,
    /// Programs for tail calls.
    Programs,
    /// Sockets of a reuseport group.
    ReuseportSockets,
    /// CPUs that packets are redirected to.
    Cpus,
    /// AF_XDP sockets.
    XdpSockets,
    /// Sockets that streams are redirected to.
    Sockets,
    /// Sockets that streams are redirected to, by key.
    SocketHash,
    /// Records that programs write and [`super::Ring`] reads; `entries` are bytes, a power of two.
    RingBuffer,
    /// Values by kernel thread, freed when it ends.
    TaskStorage,
    /// Maps by index.
    ArrayOfMaps,
}

impl MapKind {
    const ALL: [(Self, u32); 15] = [
        (Self::Array, sys::BPF_MAP_TYPE_ARRAY),
        (Self::PerCpuArray, sys::BPF_MAP_TYPE_PERCPU_ARRAY),
        (Self::Hash, sys::BPF_MAP_TYPE_HASH),
        (Self::GrowingHash, sys::BPF_MAP_TYPE_HASH),
        (Self::LruHash, sys::BPF_MAP_TYPE_LRU_HASH),
        (Self::Prefixes, sys::BPF_MAP_TYPE_LPM_TRIE),
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

/// The description of a map, for creating it or as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// Its name; the kernel keeps at most 15 bytes.
    pub name: String,
    /// Its kind.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Maximum number of entries.
    pub entries: u32,
    /// Whether programs may only read it; after [`Map::freeze`], the verifier treats its values as constants.
    pub read_only: bool,
}

/// A map.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    spec: MapSpec,
}

impl Map {
    /// Creates a map. Arrays are mappable.
    pub fn create(spec: &MapSpec) -> io::Result<Self> {
        let mut flags = 0;
        if spec.kind == MapKind::Array {
            flags |= sys::BPF_F_MMAPABLE;
        }
        // The kernel makes prefix maps no other way.
        if matches!(spec.kind, MapKind::GrowingHash | MapKind::Prefixes) {
            flags |= sys::BPF_F_NO_PREALLOC;
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

    /// Returns the map behind a descriptor, with the kernel's description of it.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let info = info(fd.as_fd())?;
        let kind = MapKind::from_number(info.type_)
            .ok_or_else(|| io::Error::other(format!("unknown kind of map: {}", info.type_)))?;
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

    /// Returns the kernel's id of the map.
    pub fn id(&self) -> io::Result<u32> {
        info(self.fd.as_fd()).map(|info| info.id)
    }

    /// Opens the map with the kernel's id `id`; looking up a value of an [`MapKind::ArrayOfMaps`] returns such an id.
    /// Needs `CAP_SYS_ADMIN`.
    pub fn by_id(id: u32) -> io::Result<Self> {
        // SAFETY: takes a number only.
        Self::from_fd(own(unsafe { sys::bpf_map_get_fd_by_id(id) })?)
    }

    /// Opens a pinned map.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::from_fd(open_pinned(path)?)
    }

    /// Pins the map in a BPF file system.
    pub fn pin(&self, path: &Path) -> io::Result<()> {
        pin(&self.fd, path)
    }

    /// Returns the map's description.
    #[must_use]
    pub fn spec(&self) -> &MapSpec {
        &self.spec
    }

    /// Returns another descriptor of the same map.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, spec: self.spec.clone() })
    }

    /// Returns how many bytes the system call reads or writes for a value. Fails if the number of CPUs cannot be read
    /// (out of descriptors, for instance): with a guess, the kernel might write beyond a buffer.
    fn value_bytes(&self) -> io::Result<usize> {
        let size = self.spec.value_size as usize;
        Ok(match self.spec.kind {
            MapKind::PerCpuArray => size.next_multiple_of(8) * possible_cpus()? as usize,
            // Sockets too: an update takes a descriptor, a lookup returns a cookie.
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

    /// Returns the value of `key`; `None` if there is none. For a per-CPU map, this is the values of all possible CPUs
    /// in sequence.
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

    /// Sets the value of `key` if it has none. Returns false if it has one.
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

    /// Stores a descriptor (of a socket, a program or a map) at `index`. In maps of reuseport sockets, values have
    /// eight bytes.
    pub fn put_fd(&self, index: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut value = vec![0; self.spec.value_size as usize];
        value[..4].copy_from_slice(&fd.as_raw_fd().to_ne_bytes());
        self.update(&index.to_ne_bytes(), &value)
    }

    /// Inserts sockets, which other processes may keep locked, at their indices of a [`MapKind::Sockets`]. Returns the
    /// result for each: `EEXIST` if the index is in use, or the kernel's other errors.
    ///
    /// Inserting takes the sockets' locks, so [`run_in_child`] does it, for `user`. One child inserts all of them: the
    /// time limit is for all together, even if their locks are released one after another.
    ///
    /// # Errors
    /// Those of [`run_in_child`]. Some sockets may have been inserted by then, and a child that was left behind may
    /// still insert the socket that it waits for.
    pub fn insert_sockets(
        &self,
        user: u32,
        sockets: &[(u32, BorrowedFd<'_>)],
    ) -> io::Result<Vec<io::Result<()>>> {
        /// Bytes of an error number; the number is 0 for success.
        const NUMBER: usize = size_of::<i32>();
        // Checked here: in the child, an error with a text would allocate.
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

    /// Removes `key`. Returns whether it was there.
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

    /// Returns all keys, in time linear in the size of the map. Keys added or removed meanwhile may or may not appear.
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

    /// Makes the map read-only for system calls.
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
        map.inspect_err(|error| eprintln!("SKIPPED: cannot create a map of sockets: {error}")).ok()
    }

    /// However many of a user's sockets are locked, this takes the time of one child.
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
            eprintln!("SKIPPED: needs userfaultfd, which needs root");
            return;
        };
        assert_eq!(at([4, 5, 6, 7]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        // The child that waits for the first inserts no other.
        assert!(!(4..8).any(is_there));
        assert_eq!(children_made() - before, 2);
    }
}
