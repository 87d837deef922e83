//! Which of this machine's compilers can compile with probes.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Error;
use crate::search::{program, variable};
use crate::toolchain::{self, CLANG_VARIABLE, Language, Llvm, MAJORS};

/// A compiler, and whether it is supported.
#[derive(Clone, Debug, Serialize)]
pub struct Compiler {
    /// The name by which it was looked for.
    pub name: String,
    /// Whether it is the one that `heddle cc` or `heddle cargo` uses.
    pub default: bool,
    /// Where it is, if it is installed.
    pub path: Option<PathBuf>,
    /// Its version, if it is supported.
    pub version: Option<String>,
    /// LLVM's major version.
    pub llvm: Option<u32>,
    /// The `llvm-config` for which the pass is built.
    pub llvm_config: Option<PathBuf>,
    /// Whether programs can be compiled with probes by it.
    pub supported: bool,
    /// Why not, and what to do.
    pub reason: Option<String>,
}

/// Returns the default clang, the default rustc, and each other clang that is installed.
pub fn compilers() -> Vec<Compiler> {
    let others = MAJORS.map(|major| format!("clang-{major}"));
    let mut compilers = vec![default_clang(), default_rustc()];
    compilers.extend(others.filter_map(|name| {
        let path = program(&name)?;
        let mut compiler = Compiler::new(name, false);
        compiler.examine_clang(Ok(path));
        Some(compiler)
    }));
    compilers
}

/// Returns the clang that `heddle cc` uses.
pub fn default_clang() -> Compiler {
    let named = variable(CLANG_VARIABLE).map(|name| name.to_string_lossy().into_owned());
    let mut compiler = Compiler::new(named.unwrap_or_else(|| "clang".into()), true);
    compiler.examine_clang(toolchain::clang(Language::C));
    compiler
}

/// Returns the rustc that `heddle cargo` uses.
pub fn default_rustc() -> Compiler {
    let named = variable("RUSTC").map(|name| name.to_string_lossy().into_owned());
    let mut compiler = Compiler::new(named.unwrap_or_else(|| "rustc".into()), true);
    compiler.path = program(&compiler.name);
    let found = toolchain::rustc(None).and_then(|rustc| {
        compiler.version = Some(rustc.version.release);
        compiler.add_llvm(rustc.version.major, &rustc.path)
    });
    compiler.conclude(found);
    compiler
}

impl Compiler {
    fn new(name: String, default: bool) -> Compiler {
        let (path, version, llvm, llvm_config, reason) = (None, None, None, None, None);
        Compiler { name, default, path, version, llvm, llvm_config, supported: false, reason }
    }

    fn examine_clang(&mut self, found: Result<PathBuf, Error>) {
        let examined = found.and_then(|path| {
            self.path = Some(path.clone());
            let version = toolchain::clang_version(&path)?;
            self.version = Some(version.release);
            self.add_llvm(version.major, &path)
        });
        self.conclude(examined);
    }

    fn add_llvm(&mut self, major: u32, path: &Path) -> Result<(), Error> {
        self.llvm = Some(major);
        self.llvm_config = Some(Llvm::find(major, path)?.config);
        toolchain::plugin_compiler().map(drop)
    }

    fn conclude(&mut self, examined: Result<(), Error>) {
        self.supported = examined.is_ok();
        self.reason = examined.err().map(|error| error.to_string());
    }
}
