//! `heddle record`: what runs where, for a while, as a trace for Perfetto.

mod kernel;
mod names;
mod pages;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use heddle_core::Ns;
use heddle_export::perfetto::{Clocks, Summary, Trace};
use heddle_metrics::human;
use heddle_sys::processes::Process;
use serde_json::json;

use self::kernel::KernelEvents;
use self::pages::PageEvents;
use super::sim::claim;
use crate::exit::{self, Outcome, Usage};
use crate::{interrupt, out};

/// How often events are read: nothing wakes the reader.
const EVERY: Duration = Duration::from_millis(50);
/// How often progress is shown.
const SHOWN: Duration = Duration::from_millis(500);
/// What is written at once.
const BUFFER: usize = 1 << 18;

/// The trace that is being written.
pub type Output = Trace<BufWriter<File>>;

/// Options of `heddle record`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo heddle record --for 10s -o t.pftrace
  sudo heddle record -p 4711 --for 30s -o t.pftrace
  heddle record -p $(pidof server) --for 5s --json | jq .lost

As root the trace has the switches of all CPUs; otherwise only the tasks of your own Heddle
programs. Open it at https://ui.perfetto.dev, which reads it in the browser and sends it nowhere.
Ctrl-C ends the recording: the file is complete. A wakeup is shown on the CPU where the thread ran
next: who woke it is not recorded.")]
pub struct Args {
    /// A process whose tasks are recorded, if it has a Heddle runtime; may be repeated. Without it, all such
    /// processes of this user.
    #[arg(short, long, value_name = "PID")]
    pid: Vec<u32>,
    /// How long to record.
    #[arg(long = "for", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    time: Duration,
    /// The file.
    #[arg(short, long, value_name = "FILE", default_value = "heddle.pftrace", value_parser = out::new_file)]
    output: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
    /// Do not record the kernel's switches, which costs about 400 ns each.
    #[arg(long)]
    no_kernel: bool,
    /// Print what was recorded as a JSON object.
    #[arg(long)]
    json: bool,
}

/// Parses a duration from 100 ms to a day.
fn duration(text: &str) -> Result<Duration, String> {
    let time: Option<Ns> = text.parse().ok();
    let time = time.filter(|time| (Ns::from_ms(100)..=Ns::from_secs(86_400)).contains(time));
    let time = time.ok_or_else(|| format!("`{text}` is not a duration from 100ms to 86400s"))?;
    Ok(Duration::from_nanos(time.0))
}

/// Records.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    for &pid in &args.pid {
        Process::of(pid).ok_or_else(|| Usage(format!("there is no process {pid}")))?;
    }
    claim(&args.output, args.force)?;
    let stop = interrupt::flag()?;
    let kernel = match args.no_kernel {
        true => Err("it was not wanted (--no-kernel)".into()),
        false => KernelEvents::start(),
    };
    let (pages, without) = PageEvents::open(&args.pid);
    without.iter().for_each(|why| exit::note(why));
    if let Err(why) = &kernel {
        anyhow::ensure!(
            !pages.is_empty(),
            "nothing to record: no Heddle program, and no kernel's switches: {why}"
        );
        exit::note(&format!("Without the kernel's switches: {why}"));
    }
    let file = File::create(&args.output).with_context(|| unwritable(&args.output))?;
    let trace = Trace::new(BufWriter::with_capacity(BUFFER, file), Clocks::now());
    let trace = trace.with_context(|| unwritable(&args.output))?;
    let (kernel, count) = (kernel.ok(), pages.len());
    let has_kernel = kernel.is_some();
    let mut recording = Recording { trace, kernel, pages, begin: Instant::now() };
    // What fails from here on is writing.
    recording.watch(args.time, &stop).with_context(|| unwritable(&args.output))?;
    let took = recording.begin.elapsed();
    let (_, summary) = recording.trace.finish().with_context(|| unwritable(&args.output))?;
    report(&args, &summary, took, has_kernel, count)?;
    Ok(if stop.load(Ordering::Relaxed) { Outcome::Interrupted } else { Outcome::Done })
}

fn unwritable(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn report(
    args: &Args,
    summary: &Summary,
    took: Duration,
    has_kernel: bool,
    pages: usize,
) -> anyhow::Result<()> {
    let Summary { events, ignored, lost, bytes } = *summary;
    let (file, seconds) = (args.output.display(), took.as_secs_f64());
    if args.json {
        return out::json(&json!({
            "schema": 1,
            "file": file.to_string(),
            "seconds": seconds,
            "events": events,
            "lost": lost,
            "ignored": ignored,
            "bytes": bytes,
            "kernel": has_kernel,
            "runtimes": pages,
        }));
    }
    let size = human(bytes as f64, "B");
    let text = format!("{file}: {events} events in {seconds:.1} s, {size}, {lost} lost\n");
    Ok(out::text(&out::printable(text.trim_end())).and_then(|()| out::text("\n"))?)
}

/// A recording in progress.
struct Recording {
    trace: Output,
    kernel: Option<KernelEvents>,
    pages: PageEvents,
    begin: Instant,
}

impl Recording {
    /// Records for so long, or until `stop` is set.
    fn watch(&mut self, time: Duration, stop: &AtomicBool) -> io::Result<()> {
        if let Some(kernel) = &mut self.kernel {
            kernel.begin(&mut self.trace)?;
        }
        self.pages.begin(&mut self.trace)?;
        let (is_live, mut shown) = (io::stderr().is_terminal(), Instant::now());
        while self.begin.elapsed() < time && !stop.load(Ordering::Relaxed) {
            sleep(EVERY.min(time.saturating_sub(self.begin.elapsed())));
            self.read()?;
            if is_live && shown.elapsed() >= SHOWN {
                shown = Instant::now();
                self.show(time);
            }
        }
        if is_live {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        // What came while the others were read.
        if let Some(kernel) = &mut self.kernel {
            kernel.finish(&mut self.trace)?;
        }
        self.pages.finish(&mut self.trace)
    }

    fn read(&mut self) -> io::Result<()> {
        if let Some(kernel) = &mut self.kernel {
            kernel.read(&mut self.trace)?;
        }
        self.pages.read(&mut self.trace)
    }

    fn show(&self, time: Duration) {
        let Summary { events, lost, bytes, .. } = self.trace.so_far();
        let (now, all) = (self.begin.elapsed().as_secs_f64(), time.as_secs_f64());
        let size = human(bytes as f64, "B");
        // Without a reader of standard error, progress is lost.
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{now:.0} of {all:.0} s: {events} events, {size}, {lost} lost"
        );
    }
}
