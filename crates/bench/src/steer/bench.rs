//! All parts, in the order of their tables.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heddle_core::Ns;
use heddle_metrics::{Progress, Row, Table};

use super::access::AccessOptions;
use super::cost::CostOptions;
use super::mica::{self, MicaOptions};
use super::mixes::{Case, MixOptions};
use super::outside::{self, OutsideOptions};
use super::replace::ReplaceOptions;
use super::{Dilation, Part, System, access, cost, mixes, privilege, replace};

/// What `heddle bench steer` is asked to do.
#[derive(Clone, Debug)]
pub struct SteerOptions {
    /// Which parts, in the order of [`Part::ALL`].
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

/// What was measured, and what was not.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// All rows.
    pub rows: Vec<Row>,
    /// The tables, in order.
    pub tables: Vec<Table>,
    /// What the figures say.
    pub headlines: Vec<String>,
    /// Parts that could not run, and why.
    pub skipped: Vec<(Part, String)>,
    /// Parts that broke, and how.
    pub failed: Vec<(Part, String)>,
}

impl SteerOptions {
    /// Everything at its usual length, some fifteen minutes; `quick`: all of it once and shortly, not to quote.
    /// `program` is the file of a program that answers `bench steer --child`.
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

    /// How many steps [`run`] shows.
    #[must_use]
    pub fn steps(&self) -> u64 {
        let outside = u64::from(self.outside.rounds) * 2;
        let of = |part: &Part| match part {
            Part::Mixes => self.mixes.points().len() as u64 * u64::from(self.mixes.rounds),
            Part::Udp | Part::Gunicorn => outside,
            Part::Cost | Part::Maps | Part::Replace | Part::Mica => 1,
        };
        self.parts.iter().map(of).sum()
    }
}

/// Why a part cannot run here; `None` where it can.
fn obstacle(part: Part, privilege: Option<&str>) -> Option<String> {
    match (part, privilege) {
        // Without a policy there is still the kernel's own choice, and the one socket.
        (Part::Mixes, _) => None,
        (_, Some(why)) => Some(why.to_owned()),
        (Part::Udp | Part::Mica, None) => heddle_netns::missing(),
        (Part::Gunicorn, None) => heddle_netns::missing().or_else(outside::no_gunicorn),
        _ => None,
    }
}

/// Runs the parts; what there is where `stop` is set. A part that breaks does not keep the others from running.
pub fn run(options: &SteerOptions, stop: &AtomicBool, progress: &mut Progress) -> Outcome {
    // Other work on the machine comes after this, where that is allowed; threads and children inherit it.
    heddle_sys::thread::make_punctual();
    let mut outcome = Outcome::default();
    let privilege = privilege();
    for part in Part::ALL.into_iter().filter(|part| options.parts.contains(part)) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if let Some(why) = obstacle(part, privilege.as_deref()) {
            progress.line(&format!("  {part}: skipped: {why}"));
            outcome.skipped.push((part, why));
            continue;
        }
        if let Err(error) =
            run_part(options, part, privilege.is_some(), stop, progress, &mut outcome)
        {
            progress.line(&format!("  {part}: {error}"));
            outcome.failed.push((part, error.to_string()));
        }
    }
    outcome
}

fn run_part(
    options: &SteerOptions,
    part: Part,
    alone: bool,
    stop: &AtomicBool,
    progress: &mut Progress,
    outcome: &mut Outcome,
) -> io::Result<()> {
    match part {
        Part::Mixes => {
            let mut mixes = options.mixes.clone();
            if alone {
                mixes.systems.retain(|system| matches!(system, System::Hash | System::Shared));
                mixes.cases.retain(|case| !case.has_users());
                outcome.skipped.push((part, "without privileges only hash and shared".into()));
            }
            let (samples, failed) = mixes::run(&mixes, stop, progress);
            let failed = failed.iter().map(|(system, error)| (part, format!("{system}: {error}")));
            outcome.failed.extend(failed);
            let rows = mixes::rows(&mixes, &samples);
            outcome.tables.extend(mixes::tables(&mixes, &rows));
            outcome.headlines.extend(mixes::verdicts(&rows));
            outcome.rows.extend(rows);
        }
        Part::Cost => {
            let rows = cost::run(&options.cost, stop, progress)?;
            outcome.take(cost::table(&rows), cost::verdict(&rows), rows);
        }
        Part::Maps => {
            let rows = access::run(&options.access, stop, progress)?;
            outcome.take(access::table(&rows), access::verdict(&rows), rows);
        }
        Part::Replace => {
            let rows = replace::run(&options.replace, stop, progress)?;
            outcome.take(replace::table(&rows), replace::verdict(&rows), rows);
        }
        Part::Udp | Part::Gunicorn => {
            let measure = if part == Part::Udp { outside::udp } else { outside::gunicorn };
            let rows = measure(&options.outside, stop, progress)?;
            outcome.tables.extend(outside::tables(&rows));
            outcome.headlines.extend(outside::verdicts(&rows));
            outcome.rows.extend(rows);
        }
        Part::Mica => {
            let rows = mica::run(&options.mica, stop, progress)?;
            outcome.take(mica::table(&rows), mica::verdict(&rows), rows);
        }
    }
    Ok(())
}

impl Outcome {
    fn take(&mut self, table: Option<Table>, headline: Option<String>, rows: Vec<Row>) {
        self.tables.extend(table);
        self.headlines.extend(headline);
        self.rows.extend(rows);
    }

    /// Whether all that ran may be quoted.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.failed.is_empty() && self.rows.iter().all(|row| row.valid)
    }
}

/// What a reader must know before quoting.
#[must_use]
pub fn conditions(options: &SteerOptions) -> Vec<String> {
    let dilation = options.mixes.dilation.0;
    vec![
        format!(
            "Time is dilated {dilation} times: a GET is a sleep of {}, a SCAN one of {}; queueing decides, not the CPU. \
             Undilated figures are the measured ones divided by {dilation}.",
            options.mixes.dilation.service(crate::load::Op::Get),
            options.mixes.dilation.service(crate::load::Op::Scan),
        ),
        "Open loop, Poisson, 50 flows over loopback; latency from the intended send time; a run with more than 1.5 % of \
         sends later than a millisecond (dilated) is invalid."
            .into(),
        "Capacity is computed from the service times; sleeps take longer than asked (service_p50), so the real one is lower."
            .into(),
        format!(
            "{} rounds, systems in turn, medians; ratios are within a round. JIQ's servers say nothing to it.",
            options.mixes.rounds
        ),
        "The bench asks for short slices and runs at nice -19 where it may, so that other work on the machine comes after it.".into(),
    ]
}
