//! All parts, in the order of their tables.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use heddle_core::Ns;
use heddle_metrics::{Progress, Report, Results, Row, Table};

use super::access::AccessOptions;
use super::cost::CostOptions;
use super::mica::{self, MicaOptions};
use super::mixes::{Case, MixOptions};
use super::outside::{self, OutsideOptions};
use super::replace::ReplaceOptions;
use super::report::report;
use super::{Dilation, Part, System, access, cost, mixes, privilege, replace};
use crate::suite::{Outcome, Part as _, PartResult, Suite};

/// Options of `heddle bench steer`.
#[derive(Clone, Debug)]
pub struct SteerOptions {
    /// The parts to run, in the order of [`crate::suite::Part::ALL`].
    pub parts: Vec<Part>,
    /// The dilated server.
    pub mixes: MixOptions,
    /// Decisions.
    pub cost: CostOptions,
    /// Maps.
    pub access: AccessOptions,
    /// Replacement.
    pub replace: ReplaceOptions,
    /// Unmodified servers.
    pub outside: OutsideOptions,
    /// Keys to their cores.
    pub mica: MicaOptions,
}

impl SteerOptions {
    /// All parts at their usual length, some fifteen minutes in total; with `quick`, one short round of each,
    /// not to quote. `program` is the file of a program that implements `bench steer --child`.
    #[must_use]
    pub fn new(program: PathBuf, quick: bool) -> SteerOptions {
        let (dilation, seed) = (Dilation::default(), 1);
        let pick = |usual: u32, quickly: u32| if quick { quickly } else { usual };
        SteerOptions {
            parts: Part::ALL.to_vec(),
            mixes: MixOptions {
                dilation,
                systems: System::all(),
                cases: Case::ALL.to_vec(),
                loads: if quick { vec![0.5] } else { vec![0.5, 0.75] },
                rounds: pick(3, 1),
                duration: Ns::from_ms(pick(3000, 1000).into()),
                seed,
            },
            cost: CostOptions { rounds: pick(15, 3), datagrams: pick(500, 200) },
            access: AccessOptions { rounds: pick(9, 2), accesses: pick(20_000, 5_000) },
            replace: ReplaceOptions {
                rounds: pick(5, 1),
                duration: Duration::from_millis(pick(3000, 1000).into()),
                rate: 5_000,
                swaps: 500,
            },
            outside: OutsideOptions {
                rounds: pick(3, 1),
                duration: Ns::from_ms(pick(8000, 3000).into()),
                seed,
                dilation,
                program,
            },
            mica: MicaOptions::new(quick),
        }
    }
}

/// Why a part cannot run here; `None` if it can.
fn obstacle(part: Part, privilege: Option<&str>) -> Option<String> {
    match (part, privilege) {
        // Without policies, the kernel's own choice and the single socket remain.
        (Part::Mixes, _) => None,
        (_, Some(why)) => Some(why.to_owned()),
        (Part::Udp | Part::Mica, None) => heddle_netns::missing_privilege(),
        (Part::Gunicorn, None) => heddle_netns::missing_privilege().or_else(outside::no_gunicorn),
        _ => None,
    }
}

impl Suite for SteerOptions {
    type Part = Part;

    const NAME: &'static str = "bench steer";

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn steps(&self) -> u64 {
        let outside = u64::from(self.outside.rounds) * 2;
        let of = |part: &Part| match part {
            Part::Mixes => self.mixes.points().len() as u64 * u64::from(self.mixes.rounds),
            Part::Udp | Part::Gunicorn => outside,
            Part::Cost | Part::Maps | Part::Replace => 1,
            Part::Mica => self.mica.steps(),
        };
        self.parts.iter().map(of).sum()
    }

    /// Raises the priority over other work on the machine, if permitted; threads and children inherit it.
    fn prepare(&self) {
        heddle_sys::thread::make_punctual();
    }

    fn obstacle(&self, part: Part) -> Option<String> {
        obstacle(part, privilege().as_deref())
    }

    fn lacks(&self, part: Part) -> Option<String> {
        let alone = part == Part::Mixes && privilege().is_some();
        alone.then(|| "without privileges only hash and shared".into())
    }

    fn measure(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        match part {
            Part::Mixes => Ok(self.measure_mixes(stop, progress)),
            Part::Cost => {
                let rows = cost::run(&self.cost, stop, progress)?;
                Ok(found(cost::table(&rows), cost::verdict(&rows), rows))
            }
            Part::Maps => {
                let rows = access::run(&self.access, stop, progress)?;
                Ok(found(access::table(&rows), access::verdict(&rows), rows))
            }
            Part::Replace => {
                let rows = replace::run(&self.replace, stop, progress)?;
                Ok(found(replace::table(&rows), replace::verdict(&rows), rows))
            }
            Part::Udp | Part::Gunicorn => {
                let measure = if part == Part::Udp { outside::udp } else { outside::gunicorn };
                let rows = measure(&self.outside, stop, progress)?;
                Ok(found(outside::tables(&rows), outside::verdicts(&rows), rows))
            }
            Part::Mica => {
                let rows = mica::run(&self.mica, stop, progress)?;
                Ok(found(mica::tables(&rows), mica::verdicts(&rows), rows))
            }
        }
    }

    fn conditions(&self) -> Vec<String> {
        conditions(self)
    }

    fn report(&self, outcome: &Outcome<Part>, results: &Results) -> Report {
        report(&self.mixes.cases, self.conditions(), outcome, results)
    }
}

impl SteerOptions {
    fn measure_mixes(&self, stop: &AtomicBool, progress: &mut Progress) -> PartResult {
        let mut mixes = self.mixes.clone();
        if privilege().is_some() {
            mixes.systems.retain(|system| matches!(system, System::Hash | System::Shared));
            mixes.cases.retain(|case| !case.has_users());
        }
        let (samples, failed) = mixes::run(&mixes, stop, progress);
        let rows = mixes::rows(&mixes, &samples);
        let failed = failed.iter().map(|(system, error)| format!("{system}: {error}")).collect();
        let found = found(mixes::tables(&mixes, &rows), mixes::verdicts(&rows), rows);
        PartResult { failed, ..found }
    }
}

fn found(
    tables: impl IntoIterator<Item = Table>,
    headlines: impl IntoIterator<Item = String>,
    rows: Vec<Row>,
) -> PartResult {
    let (tables, headlines) = (tables.into_iter().collect(), headlines.into_iter().collect());
    PartResult { rows, tables, headlines, ..PartResult::default() }
}

/// Conditions that a reader must know before quoting.
fn conditions(options: &SteerOptions) -> Vec<String> {
    let dilation = options.mixes.dilation.0;
    vec![
        format!(
            "Time is dilated {dilation} times: a GET is a sleep of {}, a SCAN one of {}; queueing decides, not \
             the CPU. \
             Undilated figures are the measured ones divided by {dilation}.",
            options.mixes.dilation.service(heddle_load::Op::Get),
            options.mixes.dilation.service(heddle_load::Op::Scan),
        ),
        "Open loop, Poisson, 50 flows over loopback; latency from the intended send time; a run with more than \
         1.5 % of \
         sends later than a millisecond (dilated) is invalid."
            .into(),
        "Capacity is computed from the service times; sleeps take longer than asked (service_p50), so the real \
         one is lower."
            .into(),
        format!(
            "{} rounds, systems in turn, medians; ratios are within a round. JIQ's servers publish nothing.",
            options.mixes.rounds
        ),
        "The bench asks for short slices and runs at nice -19 if permitted, so that it precedes other work on \
         the machine.".into(),
    ]
}
