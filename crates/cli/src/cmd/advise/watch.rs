//! Watching a service, with progress.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use heddle_core::Ns;
use heddle_metrics::Progress;
use heddle_observe::{Options, Recording, Target, Watch};

use crate::exit::Usage;
use crate::interrupt;

/// How often rings are read.
const PERIOD: Duration = Duration::from_millis(50);

/// Options that name a service.
#[derive(clap::Args)]
pub struct TargetArgs {
    /// The service's first process; its descendants belong to it.
    #[arg(short, long = "pid", value_name = "PID")]
    pub processes: Vec<u32>,
    /// A port that it serves.
    #[arg(long = "port", value_name = "PORT", value_delimiter = ',')]
    pub ports: Vec<u16>,
}

impl TargetArgs {
    /// Returns the service.
    pub fn target(&self) -> Result<Target, Usage> {
        if self.processes.is_empty() && self.ports.is_empty() {
            return Err(Usage(
                "no service: name its first process (--pid) or its port (--port)".into(),
            ));
        }
        Ok(Target { processes: self.processes.clone(), ports: self.ports.clone() })
    }
}

/// Parses how long to watch.
pub fn duration(text: &str) -> Result<Duration, String> {
    let time: Option<Ns> = text.parse().ok();
    let time = time.filter(|time| (Ns::from_ms(100)..=Ns::from_secs(86_400)).contains(time));
    let time =
        time.ok_or_else(|| format!("`{text}` is not a duration from 100ms to 24h, such as 30s"))?;
    Ok(Duration::from_nanos(time.0))
}

/// Watches for `time`; returns `None` if it is interrupted.
pub fn record(
    target: &Target,
    time: Duration,
    progress: bool,
) -> anyhow::Result<Option<Recording>> {
    let stop = interrupt::flag()?;
    record_until(target, time, &stop, progress)
}

/// As [`record`], ended by `stop`.
pub fn record_until(
    target: &Target,
    time: Duration,
    stop: &AtomicBool,
    progress: bool,
) -> anyhow::Result<Option<Recording>> {
    let mut watch = Watch::start(target, &Options::default())?;
    let begin = Instant::now();
    let mut display = progress.then(|| Progress::new("watching", time.as_secs().max(1)));
    let mut shown = u64::MAX;
    while begin.elapsed() < time {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        std::thread::sleep(PERIOD.min(time.saturating_sub(begin.elapsed())));
        watch.poll()?;
        let second = begin.elapsed().as_secs();
        if let Some(display) =
            display.as_mut().filter(|_| second != shown && second < time.as_secs().max(1))
        {
            shown = second;
            display.step(&format!("{} requests", watch.progress().requests));
        }
    }
    let recording = watch.finish()?;
    if let Some(display) = display {
        display.finish(&format!("{} requests seen", recording.spans.len()));
    }
    Ok(Some(recording))
}
