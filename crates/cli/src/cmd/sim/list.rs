//! `heddle sim list`: the building blocks of scenarios.

use clap::ValueEnum;
use heddle_metrics::{Cell, Table};
use heddle_sim::costs::MECHANISMS;
use heddle_sim::workload::PRESETS;
use heddle_sim::{SHIPPED, keys};
use serde_json::{Map, Value, json};

use crate::exit::Outcome;
use crate::out;

/// Options of `heddle sim list`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle sim list
  heddle sim list keys
  heddle sim list mixes --json")]
pub struct Args {
    /// What to list [default: all].
    #[arg(value_enum)]
    what: Vec<Catalog>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Catalog {
    /// Shipped scenarios.
    Scenarios,
    /// Service-time mixes from papers.
    Mixes,
    /// Preemption mechanisms and their costs.
    Mechanisms,
    /// Scheduling policies (heddle policies lists their parameters).
    Policies,
    /// Keys of scenario files and of --set.
    Keys,
}

/// Prints the lists.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let what = if args.what.is_empty() { Catalog::value_variants() } else { &args.what };
    if args.json {
        let mut lists = Map::from_iter([("schema".to_owned(), json!(1))]);
        lists.extend(what.iter().map(|what| (what.title().to_lowercase(), what.json())));
        out::json(&Value::Object(lists))?;
    } else {
        let text: Vec<String> =
            what.iter().map(|what| what.table().to_text(out::style())).collect();
        out::text(&text.join("\n"))?;
    }
    Ok(Outcome::Done)
}

impl Catalog {
    fn title(self) -> &'static str {
        match self {
            Catalog::Scenarios => "Scenarios",
            Catalog::Mixes => "Mixes",
            Catalog::Mechanisms => "Mechanisms",
            Catalog::Policies => "Policies",
            Catalog::Keys => "Keys",
        }
    }

    /// Returns columns and lines; the first column is the name.
    fn lines(self) -> (Vec<&'static str>, Vec<Vec<&'static str>>) {
        match self {
            Catalog::Scenarios => {
                (vec!["name", "shows"], SHIPPED.iter().map(|s| vec![s.name, s.summary()]).collect())
            }
            Catalog::Mixes => (
                vec!["name", "parts", "source"],
                PRESETS.iter().map(|p| vec![p.name, p.text, p.source]).collect(),
            ),
            Catalog::Mechanisms => {
                (vec!["name", "is"], MECHANISMS.iter().map(|m| vec![m.name, m.summary]).collect())
            }
            Catalog::Policies => (
                vec!["name", "is"],
                heddle_policies::list().iter().map(|p| vec![p.name, p.summary]).collect(),
            ),
            Catalog::Keys => (
                vec!["key", "example", "is"],
                keys().iter().map(|k| vec![k.path, k.example, k.meaning]).collect(),
            ),
        }
    }

    fn table(self) -> Table {
        let (head, lines) = self.lines();
        let mut table = Table::new(self.title(), head);
        table.rows =
            lines.into_iter().map(|line| line.into_iter().map(Cell::text).collect()).collect();
        table
    }

    fn json(self) -> Value {
        let (head, lines) = self.lines();
        let object = |line: Vec<&str>| -> Value {
            Value::Object(
                head.iter().zip(line).map(|(name, text)| (name.to_string(), json!(text))).collect(),
            )
        };
        lines.into_iter().map(object).collect()
    }
}
