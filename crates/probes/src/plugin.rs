//! The pass as a library that compilers load: built for each LLVM on first use, and kept in the cache.
//!
//! An entry of the cache is named after all that it is made from. It is built in a temporary folder and moved into
//! place when complete, so that an interrupted build is never taken for the pass. Compilers that start at the same time
//! wait for the first to build it; on a file system without locks each builds it, to the same effect.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use crate::search::{ask, variable};
use crate::toolchain::{self, Llvm, Rustc};
use crate::{Error, cache, hash};

/// The variable that names another source of the pass, for those who work on it.
pub const SOURCE_VARIABLE: &str = "HEDDLE_PROBES_SOURCE";

const SOURCE: &str = include_str!("../../../compiler/pass/Probes.cpp");

/// Options of the build beside LLVM's. LLVM itself is not linked: its symbols are those of the compiler that loads the
/// pass.
const FLAGS: [&str; 6] =
    ["-std=c++17", "-O2", "-fPIC", "-shared", "-fno-rtti", "-fvisibility-inlines-hidden"];

/// How much of the compiler's messages an error shows.
const MESSAGE_LINES: usize = 30;

/// The pass for a compiler; it may not be built yet.
#[derive(Clone, Debug)]
pub struct Plugin {
    path: PathBuf,
    /// Names all that it is made from.
    hash: String,
    llvm: Llvm,
    compiler: PathBuf,
    source: Cow<'static, str>,
}

impl Plugin {
    /// Returns the pass for the clang at `clang`.
    ///
    /// # Errors
    /// If that clang is not supported, or what the build needs is not installed.
    pub fn for_clang(clang: &Path) -> Result<Plugin, Error> {
        let version = toolchain::clang_version(clang)?;
        Plugin::new(Llvm::find(version.major, clang)?)
    }

    /// Returns the pass for a rustc.
    ///
    /// # Errors
    /// If what the build needs is not installed.
    pub fn for_rustc(rustc: &Rustc) -> Result<Plugin, Error> {
        Plugin::new(Llvm::find(rustc.version.major, &rustc.path)?)
    }

    fn new(llvm: Llvm) -> Result<Plugin, Error> {
        let (source, compiler) = (source()?, toolchain::plugin_compiler()?);
        let compiler_version = ask(&compiler, &["--version"])?;
        let made_from = (&source, FLAGS, &llvm.version, &llvm.flags, &compiler, compiler_version);
        let hash = hash::name(made_from);
        let name = format!("heddle-probes-llvm{}.so", llvm.major);
        let path = cache::folder()?.join(&hash).join(name);
        Ok(Plugin { path, hash, llvm, compiler, source })
    }

    /// Returns the library's path, and builds it first if necessary.
    ///
    /// # Errors
    /// If it cannot be built, or the cache cannot be written.
    pub fn path(&self) -> Result<&Path, Error> {
        if !self.path.is_file() {
            self.build()?;
        }
        Ok(&self.path)
    }

    /// Returns a name that changes with the pass.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    fn build(&self) -> Result<(), Error> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        cache::create(folder)?;
        let file = folder.join("lock");
        let lock = File::create(&file).map_err(Error::cache(&file))?;
        // Without locks the work may be done twice; the lock is released with the file.
        let _ = flock(&lock, FlockOperation::LockExclusive);
        if self.path.is_file() {
            return Ok(());
        }
        // A failed write does not matter: no one reads it.
        let major = self.llvm.major;
        let _ = writeln!(io::stderr(), "heddle: building the probe pass for LLVM {major} (once)");
        let temporary = tempfile::Builder::new().prefix("building-").tempdir_in(folder);
        let temporary = temporary.map_err(Error::cache(folder))?;
        let (source, built) =
            (temporary.path().join("Probes.cpp"), temporary.path().join("built.so"));
        fs::write(&source, self.source.as_bytes()).map_err(Error::cache(&source))?;
        self.compile(&source, &built)?;
        fs::rename(&built, &self.path).map_err(Error::cache(&self.path))
    }

    fn compile(&self, source: &Path, built: &Path) -> Result<(), Error> {
        let fail = |messages: String| Error::Build {
            command: self.compiler.display().to_string(),
            major: self.llvm.major,
            messages,
        };
        let mut command = Command::new(&self.compiler);
        command.args(&self.llvm.flags).args(FLAGS).arg("-o").arg(built).arg(source);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| fail(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let messages = String::from_utf8_lossy(&output.stderr);
        let first: Vec<&str> = messages.lines().take(MESSAGE_LINES).collect();
        Err(fail(format!("{}\n({})", first.join("\n"), output.status)))
    }
}

/// Returns the path of the pass for the clang at `clang`, and builds it first if necessary.
///
/// A note in the cache keeps the answer for this clang, because asking for versions takes longer than compiling a small
/// file. It is valid as long as clang's file and the source are the same, and the pass is there.
///
/// # Errors
/// As [`Plugin::for_clang`] and [`Plugin::path`].
pub fn for_clang(clang: &Path) -> Result<PathBuf, Error> {
    let folder = cache::folder()?.join("compilers");
    let note = match toolchain::identity(clang) {
        Some(identity) => folder.join(hash::name((identity, source()?))),
        None => return Ok(Plugin::for_clang(clang)?.path()?.to_owned()),
    };
    let noted = fs::read_to_string(&note).ok().map(PathBuf::from);
    if let Some(path) = noted.filter(|path| path.is_file()) {
        return Ok(path);
    }
    let plugin = Plugin::for_clang(clang)?;
    let path = plugin.path()?;
    // The note is for speed only: without it the next compiler finds out again.
    let _ = write(&folder, &note, &path.to_string_lossy());
    Ok(path.to_owned())
}

/// Writes a file so that readers find all of it or none.
fn write(folder: &Path, file: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    temporary.write_all(text.as_bytes())?;
    temporary.persist(file)?;
    Ok(())
}

fn source() -> Result<Cow<'static, str>, Error> {
    let Some(path) = variable(SOURCE_VARIABLE).map(PathBuf::from) else {
        return Ok(Cow::Borrowed(SOURCE));
    };
    fs::read_to_string(&path).map(Cow::Owned).map_err(|source| Error::Source { path, source })
}
