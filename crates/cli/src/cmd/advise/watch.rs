//! Watching a service, with progress.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heddle_core::Ns;
use heddle_metrics::Progress;
use heddle_observe::{Options, Progress as Seen, Recording, Target, Watch};

use crate::exit::Usage;
use crate::interrupt;

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
    let seconds = time.as_secs().max(1);
    let mut display = progress.then(|| Progress::new("watching", seconds));
    let mut shown = None;
    let show = |seen: Seen| {
        let second = seen.elapsed.0 / Ns::from_secs(1).0;
        let is_new = shown != Some(second) && second < seconds;
        if let Some(display) = display.as_mut().filter(|_| is_new) {
            shown = Some(second);
            display.step(&format!("{} requests", seen.requests));
        }
    };
    let recording = Watch::for_duration(target, &Options::default(), time, stop, show)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    if let Some(display) = display {
        display.finish(&format!("{} requests seen", recording.spans.len()));
    }
    Ok(Some(recording))
}
