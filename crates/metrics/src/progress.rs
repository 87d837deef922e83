//! Displays the progress of long work on standard error.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use heddle_core::Ns;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

use crate::table::printable;

/// The progress of work in steps.
///
/// On a terminal one line is redrawn: a bar, the step, the elapsed and the expected time. Elsewhere each step
/// is a line of its own: logs stay readable. Standard output stays free for results. Write errors are ignored:
/// the work matters, not the display.
///
/// Nothing is drawn between calls: a thread that redraws would disturb what is measured.
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
    display: Display,
    started: Instant,
    state: State,
}

enum Display {
    Terminal(ProgressBar),
    Log(Box<dyn Write + Send>),
}

/// The content of the line, apart from the clock.
#[derive(Debug)]
struct State {
    title: String,
    steps: u64,
    /// The number of the current step, from 1; 0 before the first.
    current: u64,
    expected: Option<Ns>,
    text: String,
}

impl Progress {
    /// Displays `steps` steps on standard error.
    pub fn new(title: &str, steps: u64) -> Progress {
        let stderr = io::stderr();
        match stderr.is_terminal() {
            true => Progress::on(ProgressDrawTarget::stderr(), title, steps),
            false => Progress::log(stderr, title, steps),
        }
    }

    /// Writes `steps` steps to `out`, a line each.
    pub fn log(out: impl Write + Send + 'static, title: &str, steps: u64) -> Progress {
        Progress::with(Display::Log(Box::new(out)), title, steps)
    }

    fn on(terminal: ProgressDrawTarget, title: &str, steps: u64) -> Progress {
        let style = ProgressStyle::with_template("{bar:20} {wide_msg}").expect("a valid template");
        let bar = ProgressBar::with_draw_target(Some(steps), terminal);
        let bar = bar.with_style(style).with_finish(ProgressFinish::Abandon);
        Progress::with(Display::Terminal(bar), title, steps)
    }

    fn with(display: Display, title: &str, steps: u64) -> Progress {
        let state =
            State { title: title.into(), steps, current: 0, expected: None, text: String::new() };
        Progress { display, started: Instant::now(), state }
    }

    /// Returns the same progress with the time that all steps together are expected to take.
    #[must_use]
    pub fn expecting(mut self, total: Duration) -> Progress {
        self.state.expected = Some(total.into());
        self
    }

    /// Starts the next step.
    pub fn step(&mut self, text: &str) {
        self.state.current += 1;
        self.state.text = text.into();
        self.show();
    }

    /// Updates the elapsed time within a step, on a terminal only.
    pub fn tick(&mut self) {
        if matches!(self.display, Display::Terminal(_)) {
            self.show();
        }
    }

    /// Prints a permanent line above the progress.
    pub fn line(&mut self, text: &str) {
        match &mut self.display {
            Display::Terminal(bar) => bar.println(text),
            Display::Log(out) => drop(writeln!(out, "{text}")),
        }
    }

    /// Ends the progress with a permanent line that includes the total time.
    pub fn finish(mut self, text: &str) {
        let took = clock(self.started.elapsed().into());
        let line = format!("{}: {} ({took})", self.state.title, printable(text));
        if let Display::Terminal(bar) = &self.display {
            bar.println(&line);
            bar.finish_and_clear();
        } else {
            self.line(&line);
        }
    }

    fn show(&mut self) {
        let line = self.state.line(self.started.elapsed().into());
        match &mut self.display {
            Display::Terminal(bar) => {
                bar.set_message(line);
                bar.set_position(self.state.finished());
                bar.tick();
            }
            Display::Log(out) => drop(writeln!(out, "{line}")),
        }
    }
}

impl State {
    fn line(&self, elapsed: Ns) -> String {
        let remaining = self
            .total(elapsed)
            .map_or(String::new(), |total| format!(" of about {}", clock(total)));
        let (title, text) = (printable(&self.title), printable(&self.text));
        format!("{title} [{}/{}] {text}  {}{remaining}", self.current, self.steps, clock(elapsed))
    }

    fn finished(&self) -> u64 {
        self.current.saturating_sub(1)
    }

    /// The expected total time: as given (but at least the elapsed time), else extrapolated from the finished steps.
    fn total(&self, elapsed: Ns) -> Option<Ns> {
        let finished = self.finished();
        match self.expected {
            Some(total) => Some(total.max(elapsed)),
            None if finished > 0 && elapsed >= Ns::from_secs(1) => {
                Some(elapsed * self.steps.max(self.current) / finished)
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
    use indicatif::InMemoryTerm;
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

    #[test]
    fn without_a_terminal_each_step_is_a_plain_line() {
        let sink = Sink::default();
        let mut progress = Progress::log(sink.clone(), "kv", 2);
        progress.step("heddle");
        progress.tick();
        progress.step("tokio");
        progress.finish("done");
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert!(text.contains("kv [1/2] heddle") && !text.contains('\x1b') && !text.contains('\r'));
    }

    #[test]
    fn on_a_terminal_one_line_is_redrawn_below_the_permanent_ones() {
        let terminal = InMemoryTerm::new(10, 60);
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let mut progress = Progress::on(target, "kv", 2);
        progress.step("heddle");
        progress.line("first");
        progress.step(&"tokio".repeat(40));
        let text = terminal.contents();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, "first"), "{text}");
        assert!(lines[1].contains("kv [2/2] tokio") && lines[1].chars().count() <= 60, "{text}");
        progress.finish("done");
        assert_eq!(terminal.contents(), "first\nkv: done (0:00)");
    }

    #[test]
    fn the_remaining_time_is_estimated() {
        let mut state =
            State { title: "kv".into(), steps: 4, current: 2, expected: None, text: "x".into() };
        assert_eq!(state.line(Ns::from_secs(30)), "kv [2/4] x  0:30 of about 2:00");
        state.expected = Some(Ns::from_secs(65));
        assert_eq!(state.line(Ns::from_secs(30)), "kv [2/4] x  0:30 of about 1:05");
        assert_eq!(state.line(Ns::from_secs(70)), "kv [2/4] x  1:10 of about 1:10");
    }
}
