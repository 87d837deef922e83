//! Services that do not run yet: from a scenario or a trace file to a model.

use std::path::Path;

use heddle_core::Ns;
use heddle_observe::Host;
use heddle_sim::workload::{Arrivals, FileError, Gaps, TraceReader, TraceRequest};
use heddle_sim::{Load, Random, Scenario};

use crate::AdviseError;
use crate::model::{ClassOfRequests, Model, Queue, Request, Worker, WorkerKind};
use crate::options::Change;
use crate::replay::Cpus;
use crate::{quantile, replay};

/// The connections of a trace that names none, as many as the load generator of Syrup's evaluation has (section 5.1),
/// rounded up.
const CONNECTIONS: u64 = 64;
/// Requests that are drawn from a scenario, at most.
const DRAWN: u64 = 40_000;
/// The random streams.
const GAPS: u64 = 1;
const SIZES: u64 = 2;
const FLOWS: u64 = 3;
const HASH: u64 = 4;

/// How a service will serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Design {
    /// Sync workers, each with a socket of its own behind the kernel's hash.
    pub workers: usize,
    /// CPUs that run them.
    pub cpus: usize,
}

impl Model {
    /// Reads the requests of a trace, as `heddle sim` reads it. A request without a connection gets one of 64; one
    /// without an executor goes where a hash of its connection leads.
    ///
    /// # Errors
    /// [`FileError`] with file and line for the first fault.
    pub fn of_trace(file: &Path, design: Design) -> Result<Model, AdviseError> {
        TraceReader::check(file)?;
        let mut reader = TraceReader::open(file)?;
        let requests = reader.by_ref().collect::<Result<Vec<TraceRequest>, FileError>>()?;
        let names = reader.names().to_vec();
        Model::designed(&name(file), design, names, requests)
    }

    /// Draws the requests of a scenario: its arrivals, its mix, its load; a share is one of the design's workers. Its
    /// machine and its policy are not used: the design says how many workers and CPUs there are.
    ///
    /// # Errors
    /// [`AdviseError::Closed`] if the scenario is a closed loop; else those of the file with its trace.
    pub fn of_scenario(
        title: &str,
        scenario: &Scenario,
        design: Design,
    ) -> Result<Model, AdviseError> {
        match &scenario.arrivals {
            Arrivals::Trace(file) => return Model::of_trace(file, design),
            Arrivals::Closed { .. } => return Err(AdviseError::Closed),
            _ => {}
        }
        let rate = match scenario.load {
            Load::Share(share) => share * design.workers.max(1) as f64 * 1e9 / scenario.mix.mean(),
            Load::PerSecond(rate) => rate,
        };
        let mut gaps = Gaps::new(&scenario.arrivals, rate)
            .map_err(|error| AdviseError::Scenario(error.to_string()))?;
        let (mut between, mut sizes) =
            (Random::new(scenario.seed, GAPS), Random::new(scenario.seed, SIZES));
        let mut arrival = Ns::ZERO;
        let draw = |_| {
            arrival += gaps.next(&mut between);
            let (kind, service) = scenario.mix.sample(&mut sizes);
            let class = scenario.mix.parts()[kind].class;
            TraceRequest {
                arrival,
                service,
                class,
                kind,
                connection: None,
                executor: None,
                wait: Ns::ZERO,
            }
        };
        let requests = (0..scenario.requests.min(DRAWN)).map(draw).collect();
        let names = scenario.mix.parts().iter().map(|part| part.name.clone()).collect();
        Model::designed(title, design, names, requests)
    }

    /// The "observation" of a service that does not run is its replay as designed.
    fn designed(
        title: &str,
        design: Design,
        names: Vec<String>,
        requests: Vec<TraceRequest>,
    ) -> Result<Model, AdviseError> {
        let mut flows = Random::new(1, FLOWS);
        let workers = design.workers.max(1);
        let place = |request: &TraceRequest| {
            let connection = request.connection.unwrap_or_else(|| flows.below(CONNECTIONS) as u32);
            let hashed = || Random::new(connection.into(), HASH).below(workers as u64) as u32;
            let queue = request.executor.map_or_else(hashed, |executor| executor % workers as u32);
            Request {
                arrived: request.arrival,
                connection,
                queue,
                worker: queue,
                class: request.kind.min(usize::from(u8::MAX)) as u8,
                cpu: request.service,
                sleep: request.wait,
                ..Request::default()
            }
        };
        let requests: Vec<Request> = requests.iter().map(place).collect();
        let worker = |queue| Worker { queue, kind: WorkerKind::Sync, ..Worker::default() };
        let mut model = Model {
            host: Host { cpus: design.cpus.max(1) as u32, ..Host::default() },
            service: title.into(),
            queues: vec![Queue { socket: 0, steerable: workers > 1 }; workers],
            workers: (0..workers).map(worker).collect(),
            classes: classes(&names, &requests),
            requests,
            ..Model::default()
        };
        let responses =
            replay::responses(&model, &model.requests, &Change::Nothing, Cpus::Host, 1)?;
        model
            .requests
            .iter_mut()
            .zip(responses)
            .for_each(|(request, response)| request.response = response);
        Ok(model)
    }
}

fn classes(names: &[String], requests: &[Request]) -> Vec<ClassOfRequests> {
    let class = |(number, name): (usize, &String)| {
        let of = requests.iter().filter(|request| usize::from(request.class) == number);
        let mut demands: Vec<Ns> = of.map(Request::demand).collect();
        ClassOfRequests {
            name: name.clone(),
            requests: demands.len(),
            demand: quantile(&mut demands, 0.5),
        }
    };
    names.iter().enumerate().map(class).collect()
}

fn name(file: &Path) -> String {
    file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, advise_design};

    const DESIGN: Design = Design { workers: 6, cpus: 6 };

    fn scenario(mix: &str, load: f64) -> Scenario {
        let mut scenario = Scenario::ideal("fifo", 6, mix.parse().unwrap(), load);
        scenario.requests = 20_000;
        scenario
    }

    #[test]
    fn a_design_with_a_socket_for_each_worker_wants_steering_if_some_requests_are_long() {
        let scenario = scenario("get: 99.5% 11us, scan: 0.5% 700us", 0.5);
        let model = Model::of_scenario("kv", &scenario, DESIGN).unwrap();
        assert_eq!(model.classes.len(), 2);
        let options = Options { policies: vec!["sita".into()], ..Options::default() };
        let advice = advise_design(&model, &options, |_, _| {}).unwrap();
        let best = advice.best().expect("something helps");
        assert!(best.ratio.value > 1.1 && best.ratio.low >= 1.0, "{:?}", best.ratio);
        assert!(advice.options.len() > 5 && advice.declined.is_none());
    }

    #[test]
    fn a_design_with_little_load_wants_nothing() {
        let model = Model::of_scenario("kv", &scenario("10us", 0.02), DESIGN).unwrap();
        let advice = advise_design(&model, &Options::default(), |_, _| {}).unwrap();
        assert_eq!(advice.best(), None, "{:?}", advice.options.first());
    }

    #[test]
    fn executors_of_a_trace_are_kept() {
        let folder = heddle_test_support::temp_dir();
        let file = folder.path().join("monday.csv");
        std::fs::write(
            &file,
            "arrival,service,executor,name\n0,1us,1,get\n5us,9us,0,scan\n9us,1us,7,get\n",
        )
        .unwrap();
        let model = Model::of_trace(&file, Design { workers: 2, cpus: 2 }).unwrap();
        assert_eq!(model.service, "monday");
        assert_eq!(
            model.requests.iter().map(|request| request.queue).collect::<Vec<_>>(),
            [1, 0, 1]
        );
        assert_eq!(model.classes.iter().map(|class| class.requests).collect::<Vec<_>>(), [2, 1]);
        assert!(model.requests.iter().all(|request| request.response >= request.cpu));
        let missing = Model::of_trace(&folder.path().join("no.csv"), DESIGN).unwrap_err();
        assert!(missing.to_string().contains("no.csv"), "{missing}");
    }
}
