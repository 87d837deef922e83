//! The attachments of steering policies.

use heddle_export::openmetrics::{Labels, Metrics};
use heddle_steer::client::Steering;
use heddle_steer::request::{Attachment, Stats};
use heddle_sys::processes::Process;

use super::service_name;

/// The way to the attachments, opened when they are first read.
#[derive(Default)]
pub struct Steerings(Option<Steering>);

impl Steerings {
    /// Returns the attachments with their counts, or why they cannot be read.
    pub fn read(&mut self) -> Result<Vec<(Attachment, Stats)>, String> {
        let steering = match self.0.take() {
            Some(steering) => steering,
            None => Steering::open(false).map_err(|error| error.to_string())?,
        };
        let attachments = steering.list().map_err(|error| error.to_string())?;
        // One may be detached meanwhile.
        let read = |one: Attachment| Some((one.id, steering.stats(one.id, 0).ok()?, one));
        let read = attachments.into_iter().filter_map(read);
        let all = read.map(|(_, stats, attachment)| (attachment, stats)).collect();
        self.0 = Some(steering);
        Ok(all)
    }
}

/// Returns the service that an attachment steers.
pub fn service(attachment: &Attachment) -> String {
    let short = Process::of(attachment.pid).map(Process::name).unwrap_or_default();
    service_name(&short, &attachment.command)
}

/// Returns the counters of all attachments.
pub fn metrics(read: &Result<Vec<(Attachment, Stats)>, String>) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.source("steering", read.is_ok());
    for (attachment, stats) in read.iter().flatten() {
        let labels =
            Labels { policy: attachment.policy.clone(), ..Labels::service(&service(attachment)) };
        for executor in &stats.executors {
            let labels = Labels { executor: executor.index.to_string(), ..labels.clone() };
            metrics.counter("heddle_steer_selected_total", &labels, executor.selected);
            metrics.counter("heddle_steer_failed_total", &labels, executor.failed);
            metrics.counter("heddle_steer_moved_total", &labels, executor.moved);
        }
        metrics.counter("heddle_steer_passed_total", &labels, stats.passed);
        metrics.counter("heddle_steer_wrong_index_total", &labels, stats.wrong_index);
        metrics.counter("heddle_steer_dropped_total", &labels, stats.dropped);
    }
    metrics
}
