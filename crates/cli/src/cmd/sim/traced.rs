//! The first steps of a simulated schedule: kept for a file of values, or written as a trace while they happen.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use anyhow::Context as _;
use heddle_core::Layer;
use heddle_export::perfetto::{Clocks, Source, SourceId, Trace};
use heddle_sim::{Event, Recorder, Watch};

/// Sees the steps of a run.
pub struct Steps {
    /// Those that are kept.
    pub kept: Recorder,
    trace: Option<Traced>,
}

/// A trace that is being written.
struct Traced {
    trace: Trace<BufWriter<File>>,
    source: SourceId,
    /// Steps that are still written.
    left: usize,
    /// The first failure; nothing is written after it.
    failed: Option<io::Error>,
}

impl Steps {
    /// Keeps the first `kept` steps, and writes the first `written` to a trace.
    pub fn new(kept: usize, trace: Option<(&Path, usize)>, policy: &str) -> anyhow::Result<Steps> {
        let open = |(path, left): (&Path, usize)| {
            Traced::create(path, policy, left).with_context(|| unwritable(path))
        };
        Ok(Steps { kept: Recorder::new(kept), trace: trace.map(open).transpose()? })
    }

    /// Ends the trace at `path`, if there is one.
    pub fn finish(self, path: Option<&Path>) -> anyhow::Result<()> {
        let (Some(traced), Some(path)) = (self.trace, path) else { return Ok(()) };
        let written = match traced.failed {
            Some(error) => Err(error),
            None => traced.trace.finish().map(drop),
        };
        written.with_context(|| unwritable(path))
    }
}

/// Removes the part of a trace that an interrupted run has written.
pub fn discard(path: &Path) {
    if fs::metadata(path).is_ok_and(|file| file.is_file()) {
        let _ = fs::remove_file(path);
    }
}

fn unwritable(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

impl Traced {
    fn create(path: &Path, policy: &str, left: usize) -> io::Result<Traced> {
        let mut trace = Trace::new(BufWriter::new(File::create(path)?), Clocks::SIMULATED)?;
        let source = trace.source(&Source { name: policy, ..Source::default() })?;
        Ok(Traced { trace, source, left, failed: None })
    }
}

impl Watch for Steps {
    fn step(&mut self, step: Event) {
        self.kept.step(step);
        let Some(traced) = self.trace.as_mut().filter(|traced| traced.left > 0) else { return };
        traced.left -= 1;
        if let Err(error) = traced.trace.event(traced.source, &step.of(Layer::Sim)) {
            (traced.left, traced.failed) = (0, Some(error));
        }
    }
}
