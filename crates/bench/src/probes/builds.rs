//! Compiled programs, in a temporary folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use super::compiler::{Compiler, compile};
use super::sources::{CLOCK, HEADERS, KERNELS, Kernel, MAIN, RECORDER, TURNS};
use super::variant::Variant;

/// The programs, each compiled at its first use.
#[derive(Debug, Default)]
pub(super) struct Builds {
    folder: OnceLock<TempDir>,
}

impl Builds {
    /// Returns the program that times `kernel`.
    ///
    /// # Errors
    /// It does not compile.
    pub(super) fn timed(
        &self,
        heddle: &Path,
        compiler: &Compiler,
        kernel: &Kernel,
        variant: Variant,
    ) -> io::Result<PathBuf> {
        self.linked(heddle, compiler, (kernel, variant), MAIN.0)
    }

    /// Returns the program that records when `kernel` looks at the clock. [`CLOCK`] has no probes.
    ///
    /// # Errors
    /// It does not compile.
    pub(super) fn recorded(
        &self,
        heddle: &Path,
        compiler: &Compiler,
        kernel: &Kernel,
    ) -> io::Result<PathBuf> {
        let variant = if *kernel == CLOCK { Variant::None } else { Variant::BoundedClock };
        self.linked(heddle, compiler, (kernel, variant), RECORDER.0)
    }

    /// Returns the program of two threads.
    ///
    /// # Errors
    /// It does not compile.
    pub(super) fn turns(
        &self,
        heddle: &Path,
        compiler: &Compiler,
        variant: Variant,
    ) -> io::Result<PathBuf> {
        let folder = self.folder()?;
        let program = folder.join(format!("{}-{variant}-{}", TURNS.0, compiler.name));
        if !program.exists() {
            let mut command = compiler.command(heddle, variant);
            command.arg("-pthread").arg(folder.join(TURNS.0).with_extension("c"));
            compile(output_to(command, folder, &program), TURNS.0)?;
        }
        Ok(program)
    }

    /// The kernel's object with its probes, and the harness without.
    fn linked(
        &self,
        heddle: &Path,
        compiler: &Compiler,
        (kernel, variant): (&Kernel, Variant),
        harness: &str,
    ) -> io::Result<PathBuf> {
        let folder = self.folder()?;
        let name = format!("{}-{variant}-{harness}-{}", kernel.name, compiler.name);
        let program = folder.join(&name);
        if program.exists() {
            return Ok(program);
        }
        let object = self.object(heddle, compiler, kernel.name, variant)?;
        let harness = self.object(heddle, compiler, harness, Variant::None)?;
        let mut command = compiler.command(heddle, Variant::None);
        command.args([object, harness]).arg("-lm");
        compile(output_to(command, folder, &program), &name)?;
        Ok(program)
    }

    fn object(
        &self,
        heddle: &Path,
        compiler: &Compiler,
        source: &str,
        variant: Variant,
    ) -> io::Result<PathBuf> {
        let folder = self.folder()?;
        let object = folder.join(format!("{source}-{variant}-{}.o", compiler.name));
        if !object.exists() {
            let mut command = compiler.command(heddle, variant);
            command.arg("-c").arg(folder.join(source).with_extension("c"));
            compile(output_to(command, folder, &object), &format!("{source}.c ({variant})"))?;
        }
        Ok(object)
    }

    fn folder(&self) -> io::Result<&Path> {
        if self.folder.get().is_none() {
            let made = tempfile::Builder::new().prefix("heddle-probes-").tempdir()?;
            write_sources(made.path())?;
            // Another thread may have been faster; its folder serves as well.
            let _ = self.folder.set(made);
        }
        Ok(self.folder.get().map(TempDir::path).expect("set above"))
    }
}

fn output_to(mut command: Command, folder: &Path, file: &Path) -> Command {
    command.arg("-o").arg(file).current_dir(folder);
    command
}

/// Writes all sources into `folder`.
pub(super) fn write_sources(folder: &Path) -> io::Result<()> {
    for (name, text) in HEADERS {
        fs::write(folder.join(name), text)?;
    }
    let kernels = KERNELS.iter().chain([&CLOCK]).map(|kernel| (kernel.name, kernel.source));
    for (name, text) in kernels.chain([MAIN, RECORDER, TURNS]) {
        fs::write(folder.join(name).with_extension("c"), text)?;
    }
    Ok(())
}
