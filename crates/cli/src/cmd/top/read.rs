//! Reading the sources.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use heddle_agent::agent::{ClassReport, class_name, histogram};
use heddle_core::Histogram;
use heddle_steer::process::serving;
use heddle_steer::request::{Attachment, Stats};
use heddle_sys::processes::{self, Process};
use heddle_telemetry::Metric;

use super::reading::{Counts, Culprit, Kind, Part, Reading, Service};
use super::{lanes, share};
use crate::exit::Usage;
use crate::sources::agents::{self, Enclave};
use crate::sources::kernel::Kernel;
use crate::sources::pages::{LAYER_AGENT, Page, Pages};
use crate::sources::steering::{self, Steerings};
use crate::sources::{service_name, shares, threads};

/// The sources of all services.
pub struct Sources {
    pages: Pages,
    steerings: Steerings,
    kernel: Result<Kernel, String>,
    /// Processes, ports and brokers' sockets that were named.
    pids: Vec<u32>,
    ports: Vec<u16>,
    shares: Vec<PathBuf>,
}

impl Sources {
    /// Opens the sources. Fails if a named process or port does not exist.
    pub fn open(pids: &[u32], ports: &[u16], shares: Vec<PathBuf>) -> Result<Sources, Usage> {
        for &pid in pids {
            Process::of(pid).ok_or_else(|| Usage(format!("there is no process {pid}")))?;
        }
        let sources = Sources {
            pages: Pages::default(),
            steerings: Steerings::default(),
            kernel: Kernel::start(true),
            pids: pids.into(),
            ports: ports.into(),
            shares,
        };
        match ports.iter().find(|&&port| servers(port).is_empty()) {
            Some(port) => {
                Err(Usage(format!("no process that you may look into serves port {port}")))
            }
            None => Ok(sources),
        }
    }

    /// Reads everything.
    pub fn read(&mut self) -> Reading {
        self.pages.refresh();
        let (attachments, enclaves) = (self.steerings.read(), agents::read());
        let (shares, silent) = shares::read(&self.shares);
        let has_row = |page: &&Page| enclaves.iter().flatten().any(|enclave| enclave.has(page));
        let pages = self.pages.open.iter().filter(|page| !has_row(page));
        let mut services: Vec<Service> = pages.map(of_page).collect();
        services.extend(attachments.iter().flatten().map(of_attachment));
        services.extend(enclaves.iter().flatten().map(of_enclave));
        services.extend(shares.iter().map(share::service));
        services.extend(crate::sources::lanes::read().iter().map(lanes::service));
        services.extend(self.pids.iter().filter_map(|&pid| of_process(&processes::family(pid))));
        let named = self.ports.iter().filter_map(|&port| {
            let service = of_process(&servers(port))?;
            Some(Service { id: format!("port {port}"), ..service })
        });
        services.extend(named);
        if let Ok(kernel) = &mut self.kernel {
            let of = |service: &Service| {
                service.pids.iter().map(|&pid| (service.id.clone(), pid)).collect::<Vec<_>>()
            };
            kernel.watch(&services.iter().flat_map(of).collect::<Vec<_>>());
        }
        services.iter_mut().for_each(|service| self.add_threads(service));
        let mut missing = self.missing(&attachments, &enclaves);
        missing.extend(silent);
        Reading { at: Instant::now(), services, culprits: self.culprits(), missing }
    }

    /// Adds what the kernel says about a service's threads.
    fn add_threads(&self, service: &mut Service) {
        let mut all = Counts::default();
        for &pid in &service.pids {
            for thread in threads::of(pid) {
                let counts = Counts {
                    cpu_ns: Some(thread.cpu_ns),
                    delays: Some((thread.delay_ns, thread.turns)),
                    preempted: Some(thread.preempted),
                    ..Counts::default()
                };
                all = all.and(&counts);
                service
                    .parts
                    .push(Part { name: format!("{} {}", thread.name, thread.tid), counts });
            }
        }
        let counts = &mut service.counts;
        counts.cpu_ns = all.cpu_ns.or(counts.cpu_ns);
        counts.preempted = counts.preempted.or(all.preempted);
        if service.kind == Kind::Share {
            // Its applications wait for CPUs asleep, and in no run queue.
            return;
        }
        counts.delays = all.delays;
        if let Ok(kernel) = &self.kernel {
            counts.run_queue = service.pids.first().and_then(|&pid| kernel.delays(pid));
        }
    }

    fn culprits(&self) -> Option<Vec<Culprit>> {
        let uses = self.kernel.as_ref().ok()?.switches().uses();
        let culprit = |one: heddle_observe::Use| Culprit {
            tid: one.thread,
            name: one.name,
            delayed_ns: one.delayed.0,
        };
        Some(uses.into_iter().map(culprit).filter(|one| one.delayed_ns > 0).collect())
    }

    fn missing(
        &self,
        attachments: &Result<Vec<(Attachment, Stats)>, String>,
        enclaves: &Result<Vec<Enclave>, String>,
    ) -> Vec<String> {
        let kernel = self.kernel.as_ref().err();
        let kernel = kernel.map(|why| format!("run-queue delays are means: {why}"));
        let steering = attachments.as_ref().err().map(|why| format!("no attachments: {why}"));
        let agents = enclaves.as_ref().err().map(|why| format!("no enclaves: {why}"));
        kernel.into_iter().chain(steering).chain(agents).collect()
    }
}

/// Returns the processes that serve a port.
fn servers(port: u16) -> Vec<Process> {
    let sockets = serving(None, Some(port)).unwrap_or_default();
    let holders: BTreeSet<u32> =
        sockets.iter().flat_map(|socket| &socket.holders).copied().collect();
    holders.into_iter().filter_map(Process::of).collect()
}

/// Adds up the values of those whose name ends so.
fn total(all: &[Metric<u64>], end: &str) -> Option<u64> {
    let mut found = all.iter().filter(|one| one.name.ends_with(end)).peekable();
    found.peek()?;
    Some(found.fold(0, |sum, one| sum.saturating_add(one.value)))
}

fn times(all: &[Metric<Histogram>], ends: [&str; 2]) -> Option<Histogram> {
    let found = all.iter().filter(|one| ends.iter().any(|end| one.name.ends_with(end)));
    found.map(|one| one.value.clone()).reduce(|mut sum, one| {
        sum.merge(&one);
        sum
    })
}

/// What the inputs of a layer are called: requests, if a layer has them, else turns of tasks.
const INPUTS: [&str; 4] =
    ["_requests_total", "_events_taken_total", "_committed_total", "_switches_total"];
/// What is lost: inputs, messages, and an agent's decisions that the kernel did not accept.
const LOST: [&str; 2] = ["_lost_total", "_failed_total"];

fn counts_of(counters: &[Metric<u64>], histograms: &[Metric<Histogram>]) -> Counts {
    Counts {
        inputs: INPUTS.iter().find_map(|end| total(counters, end)),
        waiting: total(counters, "_waiting"),
        wait: times(histograms, ["_wait_seconds", "_delay_seconds"]),
        service: times(histograms, ["_service_seconds", "_burst_seconds"]),
        preempted: total(counters, "_preemptions_total"),
        lost: LOST.iter().filter_map(|end| total(counters, end)).reduce(u64::saturating_add),
        ..Counts::default()
    }
}

fn of_page(page: &Page) -> Service {
    let (counters, histograms) = (page.reader.counters(), page.reader.histograms());
    let labels: BTreeSet<&str> = counters
        .iter()
        .map(|counter| &counter.labels)
        .chain(histograms.iter().map(|times| &times.labels))
        .map(String::as_str)
        .filter(|labels| !labels.is_empty())
        .collect();
    let part = |labels: &str| {
        let counters: Vec<_> =
            counters.iter().filter(|one| one.labels == labels).cloned().collect();
        let histograms: Vec<_> =
            histograms.iter().filter(|one| one.labels == labels).cloned().collect();
        Part { name: labels.replace('=', " "), counts: counts_of(&counters, &histograms) }
    };
    let pid = page.pid();
    let kind = match &page.layer[..] {
        "events" => Kind::Events,
        "go" => Kind::Go,
        LAYER_AGENT => Kind::Agent,
        _ => Kind::Runtime,
    };
    // An agent's process is not what it schedules.
    let pids = pid.filter(|_| kind != Kind::Agent).into_iter().collect();
    Service {
        id: format!("page {pid:?} {}", page.number()),
        name: page.service.clone(),
        kind,
        policy: page.label("policy"),
        pids,
        parts: labels.into_iter().map(part).collect(),
        counts: counts_of(&counters, &histograms),
    }
}

fn of_attachment((attachment, stats): &(Attachment, Stats)) -> Service {
    let family = processes::family(attachment.pid);
    let part = |executor: &heddle_steer::request::ExecutorStats| Part {
        name: format!("executor {}: {}", executor.index, executor.label),
        counts: Counts {
            inputs: Some(executor.selected),
            lost: Some(executor.failed),
            ..Counts::default()
        },
    };
    Service {
        id: format!("attachment {}", attachment.id),
        name: format!("{} {}", steering::service(attachment), attachment.address),
        kind: Kind::Steering,
        policy: attachment.policy.clone(),
        pids: family.iter().map(|process| process.pid).collect(),
        counts: Counts {
            inputs: Some(stats.decisions()),
            lost: Some(stats.dropped + stats.failed()),
            ..Counts::default()
        },
        parts: stats.executors.iter().map(part).collect(),
    }
}

fn of_enclave(Enclave { record, report }: &Enclave) -> Service {
    let classes = report.iter().flat_map(|report| &report.classes);
    let part = |class: &ClassReport| Part {
        name: format!("class {}", class_name(class.class)),
        counts: Counts {
            inputs: Some(class.delay.count),
            wait: Some(histogram(&class.buckets)),
            ..Counts::default()
        },
    };
    let parts: Vec<Part> = classes.map(part).collect();
    let wait = parts.iter().fold(Counts::default(), |sum, part| sum.and(&part.counts)).wait;
    let pids = record.pid.map(processes::family).unwrap_or_default();
    Service {
        id: format!("enclave {}", record.name),
        name: record.name.clone(),
        kind: Kind::Agent,
        policy: record.policy.clone(),
        pids: pids.iter().map(|process| process.pid).collect(),
        counts: Counts {
            inputs: report.as_ref().map(|report| report.committed),
            waiting: report.as_ref().map(|report| report.waiting.iter().sum::<usize>() as u64),
            preempted: report.as_ref().map(|report| report.preemptions),
            lost: report.as_ref().map(|report| report.failed.saturating_add(report.lost)),
            wait,
            ..Counts::default()
        },
        parts,
    }
}

/// Returns processes as one service; `None` if all have ended.
fn of_process(family: &[Process]) -> Option<Service> {
    let first = family.first()?;
    Some(Service {
        id: format!("process {}", first.pid),
        name: service_name(&first.name(), ""),
        kind: Kind::Process,
        policy: String::new(),
        pids: family.iter().map(|process| process.pid).collect(),
        counts: Counts::default(),
        parts: Vec::new(),
    })
}
