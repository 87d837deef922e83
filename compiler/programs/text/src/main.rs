//! A program for `heddle bench probes`: parses lines of JSON and matches regular expressions in them. Prints a
//! checksum, which is the same in each run.
//!
//! Usage: text LINES [print]
//!   print  print the lines instead, as input for other programs

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write as _};

use regex::{Regex, RegexSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const WORDS: [&str; 12] = [
    "error",
    "warning",
    "request",
    "response",
    "timeout",
    "connection",
    "retry",
    "cache",
    "queue",
    "worker",
    "client",
    "server",
];

const PATTERNS: [&str; 4] = [
    r"(?i)error|timeout",
    r"\b\d{1,3}(\.\d{1,3}){3}\b",
    r"[a-z]+@[a-z]+\.(com|org)",
    r"retry \w+ retry|queue \w+$",
];

#[derive(Serialize, Deserialize)]
struct Record {
    id: u64,
    host: String,
    message: String,
    durations: Vec<f64>,
    labels: BTreeMap<String, String>,
    parent: Option<u64>,
}

fn mix(hash: u64, value: u64) -> u64 {
    let hash = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = mix(self.0.wrapping_add(1), 0x5851_f42d_4c95_7f2d);
        self.0 % limit
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len() as u64) as usize]
    }

    fn record(&mut self, id: u64) -> Record {
        let mut message = String::new();
        for _ in 0..5 + self.below(15) {
            message += self.word();
            message.push(' ');
        }
        message += &match self.below(4) {
            0 => format!("from 10.{}.{}.{}", self.below(256), self.below(256), self.below(256)),
            1 => format!("by {}@{}.org", self.word(), self.word()),
            2 => format!("\"{}\" \u{e9}\n", self.word()),
            _ => String::new(),
        };
        Record {
            id,
            host: format!("host-{}", self.below(100)),
            message,
            durations: (0..self.below(12)).map(|_| self.below(1_000_000) as f64 / 64.0).collect(),
            labels: (0..self.below(5))
                .map(|i| (format!("label-{i}"), self.word().to_owned()))
                .collect(),
            parent: (self.below(3) == 0).then(|| id / 2),
        }
    }
}

/// The checksum of what was found in the lines so far.
struct Work {
    words: RegexSet,
    pairs: Regex,
    hosts: BTreeMap<String, f64>,
    hash: u64,
}

impl Work {
    fn new() -> Work {
        let words = RegexSet::new(PATTERNS).expect("valid patterns");
        let pairs = Regex::new(r"(?P<word>\w+) (?P<next>re\w+|cache)").expect("a valid pattern");
        Work { words, pairs, hosts: BTreeMap::new(), hash: 0 }
    }

    fn add(&mut self, value: u64) {
        self.hash = mix(self.hash, value);
    }

    /// Parses a line twice, without its structure and with it, and searches its message.
    fn line(&mut self, line: &str) {
        let value: Value = serde_json::from_str(line).expect("it was just written");
        let record: Record = serde_json::from_str(line).expect("it was just written");
        self.add(line.len() as u64 + value.as_object().map_or(0, |object| object.len() as u64));
        for index in self.words.matches(&record.message) {
            self.add(index as u64);
        }
        for found in self.pairs.captures_iter(&record.message) {
            let length = found["word"].len() * 16 + found["next"].len();
            self.hash = mix(self.hash, length as u64);
        }
        let total: f64 = record.durations.iter().sum();
        self.add(total.to_bits() ^ record.parent.unwrap_or(0) ^ record.labels.len() as u64);
        *self.hosts.entry(record.host).or_insert(0.0) += total;
    }
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (lines, print) = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [lines] => (lines.parse().ok(), false),
        [lines, "print"] => (lines.parse().ok(), true),
        _ => (None, false),
    };
    let Some(lines) = lines else {
        eprintln!("usage: text LINES [print]");
        std::process::exit(2);
    };
    let mut numbers = Numbers(1);
    let mut work = Work::new();
    let mut output = BufWriter::new(io::stdout().lock());
    for id in 0..lines {
        let line = serde_json::to_string(&numbers.record(id))?;
        match print {
            true => writeln!(output, "{line}")?,
            false => work.line(&line),
        }
    }
    if !print {
        let hash = work.hosts.values().fold(work.hash, |hash, total| mix(hash, total.to_bits()));
        writeln!(output, "{hash:016x}")?;
    }
    output.flush()
}
