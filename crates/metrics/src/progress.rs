//! Showing that long work goes on, and for how long still.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use heddle_core::Ns;

use crate::table::printable;

/// A line on standard error about work in steps.
///
/// On a terminal one line is rewritten: the share done, the step, the time elapsed and expected.
/// Elsewhere each new step is a line of its own, so that logs stay readable. Standard output stays free
/// for results. Errors of writing are ignored: the work matters, not the line.
///
/// ```
/// use heddle_metrics::Progress;
///
/// let mut progress = Progress::new("threads", 2);
/// for system in ["heddle", "tokio"] {
///     progress.step(system);
///     // measure
/// }
/// progress.finish("done");
/// ```
pub struct Progress {
    out: Box<dyn Write + Send>,
    rewrite: bool,
    started: Instant,
    state: State,
}

/// What the line is made of, apart from the clock.
#[derive(Debug)]
struct State {
    title: String,
    steps: u64,
    /// Steps begun; the last of them is under way.
    begun: u64,
    expected: Option<Ns>,
    text: String,
}

impl Progress {
    /// Progress of `steps` steps on standard error.
    pub fn new(title: &str, steps: u64) -> Progress {
        let stderr = io::stderr();
        let rewrite = stderr.is_terminal();
        Progress::to(Box::new(stderr), rewrite, title, steps)
    }

    /// Progress on another stream; `rewrite` says whether that is a terminal.
    pub fn to(out: Box<dyn Write + Send>, rewrite: bool, title: &str, steps: u64) -> Progress {
        let state =
            State { title: title.into(), steps, begun: 0, expected: None, text: String::new() };
        Progress { out, rewrite, started: Instant::now(), state }
    }

    /// The same, knowing from the start how long all steps together take.
    #[must_use]
    pub fn expecting(mut self, total: Duration) -> Progress {
        self.state.expected = Some(total.into());
        self
    }

    /// Begins the next step.
    pub fn step(&mut self, text: &str) {
        self.state.begun += 1;
        self.state.text = text.into();
        self.show();
    }

    /// Shows the elapsed time anew within a step; on a terminal only.
    pub fn tick(&mut self) {
        if self.rewrite {
            self.show();
        }
    }

    /// A line that stays, above the progress.
    pub fn line(&mut self, text: &str) {
        let clear = if self.rewrite { CLEAR } else { "" };
        let _ = writeln!(self.out, "{clear}{text}");
        self.tick();
    }

    /// Ends the progress with a line that stays, and the time that all took.
    pub fn finish(mut self, text: &str) {
        let clear = if self.rewrite { CLEAR } else { "" };
        let took = clock(self.started.elapsed().into());
        let _ = writeln!(self.out, "{clear}{}: {} ({took})", self.state.title, printable(text));
        self.state.text.clear();
    }

    fn show(&mut self) {
        let line = self.state.line(self.started.elapsed().into());
        let _ = match self.rewrite {
            true => write!(self.out, "{CLEAR}{}", line.chars().take(WIDTH).collect::<String>()),
            false => writeln!(self.out, "{line}"),
        };
        let _ = self.out.flush();
    }
}

impl Drop for Progress {
    /// Leaves the terminal on a fresh line when the work ends early.
    fn drop(&mut self) {
        if self.rewrite && !self.state.text.is_empty() {
            let _ = writeln!(self.out);
        }
    }
}

/// A longer line would wrap on a terminal of 80 columns, and its first part could not be rewritten.
const WIDTH: usize = 79;

/// To the line's start, and empty it.
const CLEAR: &str = "\r\x1b[K";

impl State {
    fn line(&self, elapsed: Ns) -> String {
        let remaining = self
            .total(elapsed)
            .map_or(String::new(), |total| format!(" of about {}", clock(total)));
        let (title, text) = (printable(&self.title), printable(&self.text));
        format!("{title} [{}/{}] {text}  {}{remaining}", self.begun, self.steps, clock(elapsed))
    }

    /// The expected total: as given (never less than what has passed), else from the steps finished.
    fn total(&self, elapsed: Ns) -> Option<Ns> {
        let finished = self.begun.saturating_sub(1);
        match self.expected {
            Some(total) => Some(total.max(elapsed)),
            None if finished > 0 && elapsed >= Ns::from_secs(1) => {
                Some(elapsed * self.steps.max(self.begun) / finished)
            }
            None => None,
        }
    }
}

/// Minutes and seconds, `2:05`.
fn clock(time: Ns) -> String {
    let secs = time.0 / 1_000_000_000;
    format!("{}:{:02}", secs / 60, secs % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(rewrite: bool) -> String {
        let sink = Sink::default();
        let mut progress = Progress::to(Box::new(sink.clone()), rewrite, "kv", 2);
        progress.step("heddle");
        progress.tick();
        progress.step("tokio");
        progress.finish("done");
        let bytes = sink.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn plain_lines_without_a_terminal() {
        let text = written(false);
        assert_eq!(text.lines().count(), 3);
        assert!(text.contains("kv [1/2] heddle") && !text.contains('\x1b') && !text.contains('\r'));
    }

    #[test]
    fn one_line_on_a_terminal() {
        let text = written(true);
        assert_eq!((text.lines().count(), text.matches(CLEAR).count()), (1, 4));
    }

    #[test]
    fn the_rest_is_estimated() {
        let mut state =
            State { title: "kv".into(), steps: 4, begun: 2, expected: None, text: "x".into() };
        assert_eq!(state.line(Ns::from_secs(30)), "kv [2/4] x  0:30 of about 2:00");
        state.expected = Some(Ns::from_secs(65));
        assert_eq!(state.line(Ns::from_secs(30)), "kv [2/4] x  0:30 of about 1:05");
        assert_eq!(state.line(Ns::from_secs(70)), "kv [2/4] x  1:10 of about 1:10");
    }
}
