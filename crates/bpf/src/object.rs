//! Heddle's own compiled objects: several programs and the maps between them, loaded together by libbpf, which also
//! relocates them to the running kernel's types (CO-RE). Untrusted objects are not read here; see the crate
//! documentation.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;

use libbpf_rs::{MapCore as _, ObjectBuilder, OpenMapMut, OpenProgramMut, PrintLevel};

use super::{Link, LoadError, Map, Program};

/// An object before it is loaded, while its maps can still be changed.
#[derive(Debug)]
pub struct OpenObject {
    inner: libbpf_rs::OpenObject,
}

/// A loaded object. The maps, programs and links taken from it outlive it.
#[derive(Debug)]
pub struct Object {
    inner: libbpf_rs::Object,
}

/// libbpf's messages during the operation that holds [`OPERATION`]: its print function is global to the process.
static LOG: Mutex<String> = Mutex::new(String::new());
static OPERATION: Mutex<()> = Mutex::new(());
/// The log is cleared beyond this size; the reason for a failure is at its end.
const MAX_LOG_BYTES: usize = 1 << 20;

fn append_log(_: PrintLevel, text: String) {
    let mut log = LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if log.len() > MAX_LOG_BYTES {
        log.clear();
    }
    log.push_str(&text);
}

/// Runs an operation of libbpf; on failure, the error contains libbpf's messages.
fn with_log<T>(operation: impl FnOnce() -> libbpf_rs::Result<T>) -> Result<T, LoadError> {
    let _one = OPERATION.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, append_log)));
    let result = operation();
    libbpf_rs::set_print(before);
    let log = core::mem::take(&mut *LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    result.map_err(|error| LoadError { error: system(&error), log: without_failure_lines(&log) })
}

/// Returns the verifier's log, or libbpf's reason, without the lines that only report the failure.
fn without_failure_lines(log: &str) -> String {
    let frame =
        |line: &&str| !line.contains("PROG LOAD LOG --") && !line.contains("failed to load");
    log.lines().filter(frame).fold(String::new(), |log, line| log + line + "\n")
}

/// Parses the error number from the text: libbpf-rs exposes it nowhere else.
fn system(error: &libbpf_rs::Error) -> io::Error {
    let text = format!("{error:#}");
    let number = text.rsplit_once("(os error ").and_then(|(_, rest)| rest.split(')').next());
    match number.and_then(|number| number.parse().ok()) {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(text),
    }
}

fn missing(what: &str, name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("the object has no {what} `{name}`"))
}

impl OpenObject {
    /// Reads an object file from memory. `name` appears in messages and in the names of its data maps.
    ///
    /// # Errors
    /// Fails if libbpf does not accept the file.
    pub fn read(name: &str, bytes: &[u8]) -> Result<OpenObject, LoadError> {
        with_log(|| ObjectBuilder::default().name(name)?.open_memory(bytes))
            .map(|inner| OpenObject { inner })
    }

    fn with_map<T>(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut OpenMapMut<'_>) -> libbpf_rs::Result<T>,
    ) -> io::Result<T> {
        let mut map = self
            .inner
            .maps_mut()
            .find(|map| map.name() == name)
            .ok_or_else(|| missing("map", name))?;
        change(&mut map).map_err(|error| system(&error))
    }

    fn with_program(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut OpenProgramMut<'_>),
    ) -> io::Result<()> {
        let mut program = self
            .inner
            .progs_mut()
            .find(|program| program.name() == name)
            .ok_or_else(|| missing("program", name))?;
        change(&mut program);
        Ok(())
    }

    /// Sets the size of `map`: `entries` values, or for a ring that many bytes (a power of two, at least a page).
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such map.
    pub fn set_entries(&mut self, map: &str, entries: u32) -> io::Result<()> {
        self.with_map(map, |map| map.set_max_entries(entries))
    }

    /// Uses the map pinned at `path` instead of a new one.
    ///
    /// # Errors
    /// Fails if there is none, or if its kind or size differs.
    pub fn reuse_pinned(&mut self, map: &str, path: &Path) -> io::Result<()> {
        self.with_map(map, |map| map.reuse_pinned_map(path))
    }

    /// Uses `with` instead of a new map.
    ///
    /// # Errors
    /// Fails if its kind or size differs.
    pub fn reuse(&mut self, map: &str, with: &Map) -> io::Result<()> {
        self.with_map(map, |map| map.reuse_fd(with.as_fd()))
    }

    /// Changes the initial values of a map of global variables, named by the end of its name (`.rodata`, `.data`,
    /// `.bss`), or of a `struct_ops` map.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such map.
    pub fn set_data(&mut self, map: &str, change: impl FnOnce(&mut [u8])) -> io::Result<()> {
        let is_wanted = |name: &std::ffi::OsStr| name.to_str().is_some_and(|n| n.ends_with(map));
        let mut map_found = self
            .inner
            .maps_mut()
            .find(|found| is_wanted(found.name()))
            .ok_or_else(|| missing("map", map))?;
        let data = map_found.initial_value_mut().ok_or_else(|| missing("data in map", map))?;
        change(data);
        Ok(())
    }

    /// Omits a map, with what would be attached through it (`struct_ops`).
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such map.
    pub fn without_map(&mut self, map: &str) -> io::Result<()> {
        self.with_map(map, |map| map.set_autocreate(false))
    }

    /// Omits a program.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such program.
    pub fn without_program(&mut self, program: &str) -> io::Result<()> {
        self.with_program(program, |program| program.set_autoload(false))
    }

    /// Creates the maps in the kernel, and verifies and loads the programs.
    ///
    /// # Errors
    /// The kernel's or libbpf's; the end of the log states the reason.
    pub fn load(self) -> Result<Object, LoadError> {
        with_log(|| self.inner.load()).map(|inner| Object { inner })
    }
}

impl Object {
    /// Returns a map of the object.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such map; fails if [`super::MapKind`] does not know its kind.
    pub fn map(&self, name: &str) -> io::Result<Map> {
        let found = self.inner.maps().find(|map| map.name() == name);
        let found = found.ok_or_else(|| missing("map", name))?;
        Map::from_fd(found.as_fd().try_clone_to_owned()?)
    }

    /// Returns a program of the object.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such program, or if it was omitted.
    pub fn program(&self, name: &str) -> io::Result<Program> {
        let found = self.inner.progs().find(|program| program.name() == name);
        let found = found.filter(|program| program.autoload());
        let found = found.ok_or_else(|| missing("program", name))?;
        Ok(Program::from_fd(found.as_fd().try_clone_to_owned()?))
    }

    /// Attaches a program to the hook that its section names (`tp_btf/sched_switch`).
    ///
    /// # Errors
    /// The kernel's, with libbpf's messages.
    pub fn attach(&self, program: &str) -> Result<Link, LoadError> {
        let found = self.inner.progs_mut().find(|found| found.name() == program);
        let found = found.ok_or_else(|| without_log(missing("program", program)))?;
        let link = with_log(|| found.attach_trace())?;
        Link::of(link.as_fd()).map_err(without_log)
    }

    /// Registers the operations of a `struct_ops` map with the kernel. The map must be in section `.struct_ops.link`,
    /// so that a link keeps them registered.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` if others are registered and only one set is allowed.
    pub fn attach_operations(&mut self, map: &str) -> Result<Link, LoadError> {
        let found = self.inner.maps_mut().find(|found| found.name() == map);
        let mut found = found.ok_or_else(|| without_log(missing("map", map)))?;
        let link = with_log(|| found.attach_struct_ops())?;
        Link::of(link.as_fd()).map_err(without_log)
    }
}

fn without_log(error: io::Error) -> LoadError {
    LoadError { error, log: String::new() }
}
