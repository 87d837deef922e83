//! Compiled objects of Heddle's own: several programs and the maps between them, loaded together by libbpf, which
//! also fits them to the running kernel's types (CO-RE). Objects of strangers are not read here, see the head of this
//! folder.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;

use libbpf_rs::{MapCore as _, ObjectBuilder, OpenMapMut, OpenProgramMut, PrintLevel};

use super::{Link, LoadError, Map, Program};

/// An object before it is loaded: its maps can still be changed.
#[derive(Debug)]
pub struct OpenObject {
    inner: libbpf_rs::OpenObject,
}

/// A loaded object. Maps, programs and links that were taken from it live on without it.
#[derive(Debug)]
pub struct Object {
    inner: libbpf_rs::Object,
}

/// What libbpf said during the one operation that holds [`WORKING`]; its print function is one a process.
static SAID: Mutex<String> = Mutex::new(String::new());
static WORKING: Mutex<()> = Mutex::new(());
/// More is not kept; the end is what says why.
const MOST_SAID: usize = 1 << 20;

fn hear(_: PrintLevel, text: String) {
    let mut said = SAID.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if said.len() > MOST_SAID {
        said.clear();
    }
    said.push_str(&text);
}

/// Does something of libbpf; on failure with what it said.
fn listening<T>(operation: impl FnOnce() -> libbpf_rs::Result<T>) -> Result<T, LoadError> {
    let _one = WORKING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, hear)));
    let result = operation();
    libbpf_rs::set_print(before);
    let said = core::mem::take(&mut *SAID.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    result.map_err(|error| LoadError { error: system(&error), log: without_frame(&said) })
}

/// What is the verifier's, or libbpf's reason, without the lines that only say that it failed.
fn without_frame(said: &str) -> String {
    let frame =
        |line: &&str| !line.contains("PROG LOAD LOG --") && !line.contains("failed to load");
    said.lines().filter(frame).fold(String::new(), |log, line| log + line + "\n")
}

/// libbpf-rs keeps the number of an error to itself, but for its text.
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
    /// Reads an object file from memory. `name` is for messages and the names of its data maps.
    ///
    /// # Errors
    /// It is no object file that libbpf understands.
    pub fn read(name: &str, bytes: &[u8]) -> Result<OpenObject, LoadError> {
        listening(|| ObjectBuilder::default().name(name)?.open_memory(bytes))
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

    /// Gives `map` room for `entries` values, or a ring that many bytes (a power of two, at least a page).
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] without such a map.
    pub fn set_entries(&mut self, map: &str, entries: u32) -> io::Result<()> {
        self.with_map(map, |map| map.set_max_entries(entries))
    }

    /// Uses the map pinned at `path` in place of a new one.
    ///
    /// # Errors
    /// There is none, or it is of another kind or size.
    pub fn reuse_pinned(&mut self, map: &str, path: &Path) -> io::Result<()> {
        self.with_map(map, |map| map.reuse_pinned_map(path))
    }

    /// Uses `with` in place of a new map.
    ///
    /// # Errors
    /// It is of another kind or size.
    pub fn reuse(&mut self, map: &str, with: &Map) -> io::Result<()> {
        self.with_map(map, |map| map.reuse_fd(with.as_fd()))
    }

    /// Changes the first values of a map of global variables, by the end of its name: `.rodata`, `.data`, `.bss`; or
    /// those of a `struct_ops` map.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] without such a map.
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

    /// Leaves a map out, with what would be attached through it (`struct_ops`).
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] without such a map.
    pub fn without_map(&mut self, map: &str) -> io::Result<()> {
        self.with_map(map, |map| map.set_autocreate(false))
    }

    /// Leaves a program out.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] without such a program.
    pub fn without_program(&mut self, program: &str) -> io::Result<()> {
        self.with_program(program, |program| program.set_autoload(false))
    }

    /// Has the kernel make the maps and verify the programs.
    ///
    /// # Errors
    /// What the kernel or libbpf refused; the log's end says why.
    pub fn load(self) -> Result<Object, LoadError> {
        listening(|| self.inner.load()).map(|inner| Object { inner })
    }
}

impl Object {
    /// A map of the object.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] without such a map, or a kind that [`super::MapKind`] does not name.
    pub fn map(&self, name: &str) -> io::Result<Map> {
        let found = self.inner.maps().find(|map| map.name() == name);
        let found = found.ok_or_else(|| missing("map", name))?;
        Map::from_fd(found.as_fd().try_clone_to_owned()?)
    }

    /// A program of the object.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] without such a program, or where it was left out.
    pub fn program(&self, name: &str) -> io::Result<Program> {
        let found = self.inner.progs().find(|program| program.name() == name);
        let found = found.filter(|program| program.autoload());
        let found = found.ok_or_else(|| missing("program", name))?;
        Ok(Program::from_fd(found.as_fd().try_clone_to_owned()?))
    }

    /// Attaches a program to the place that its section names (`tp_btf/sched_switch`).
    ///
    /// # Errors
    /// The kernel's, with libbpf's words.
    pub fn attach(&self, program: &str) -> Result<Link, LoadError> {
        let found = self.inner.progs_mut().find(|found| found.name() == program);
        let found = found.ok_or_else(|| plain(missing("program", program)))?;
        let link = listening(|| found.attach_trace())?;
        Link::of(link.as_fd()).map_err(plain)
    }

    /// Puts the operations of a `struct_ops` map into the kernel. The map must be in section `.struct_ops.link`, so
    /// that a link holds them there.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` where others are there and there is one place only.
    pub fn attach_operations(&mut self, map: &str) -> Result<Link, LoadError> {
        let found = self.inner.maps_mut().find(|found| found.name() == map);
        let mut found = found.ok_or_else(|| plain(missing("map", map)))?;
        let link = listening(|| found.attach_struct_ops())?;
        Link::of(link.as_fd()).map_err(plain)
    }
}

fn plain(error: io::Error) -> LoadError {
    LoadError { error, log: String::new() }
}
