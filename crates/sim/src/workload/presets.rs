//! The papers' mixes by name.

use super::Mix;
use super::grammar::{GrammarError, Span};

/// A mix that a paper measured.
///
/// All parts are of class 0: no paper's server told its scheduler the kind of a request beforehand,
/// unless the policy itself looked. To give classes, write the parts out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name on the command line and in scenario files.
    pub name: &'static str,
    /// What it represents, and which of its figures are not the source's.
    pub summary: &'static str,
    /// Paper, section and figure.
    pub source: &'static str,
    /// The mix in the grammar of [`Mix`].
    pub text: &'static str,
}

/// All presets, those with the plainest sources first.
///
/// ```
/// use heddle_sim::workload::PRESETS;
/// for preset in PRESETS {
///     println!("{:20} {} ({})", preset.name, preset.text, preset.source);
/// }
/// ```
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "shinjuku-99.5-0.5",
        summary: "Rare long requests, 2,500 times the short ones: the test of preemption since Shinjuku.",
        source: "ghOSt 4.2, Fig. 6; Skyloft 5.2, Fig. 7",
        text: "short: 99.5% 4us, long: 0.5% 10ms",
    },
    Preset {
        name: "rocksdb-50-50",
        summary: "RocksDB, as many scans as gets; judged by slowdown.",
        source: "Skyloft 5.3, Fig. 8b",
        text: "get: 50% 950ns, scan: 50% 591us",
    },
    Preset {
        name: "aspen-rocksdb",
        summary: "RocksDB with few scans; the times are the paper's round figures.",
        source: "Aspen 4 and 4.1.1, Fig. 5 and 9",
        text: "get: 95% 1us, scan: 5% 260us",
    },
    Preset {
        name: "aspen-rocksdb-99.5",
        summary: "The same with rare scans. The paper prints 95.5 % and 0.5 %, which do not sum to 100 %: \
                  99.5 % is assumed.",
        source: "Aspen 4.1.1, text",
        text: "get: 99.5% 1us, scan: 0.5% 260us",
    },
    Preset {
        name: "dataframe",
        summary: "C++ DataFrame: five kinds of analysis of a time series, equally often.",
        source: "Aspen 4.1.2, Fig. 6",
        text: "decay: 20% 5us, ad: 20% 7us, rmv: 20% 28us, ppo: 20% 75us, kmeans: 20% 250us",
    },
    Preset {
        name: "badger",
        summary: "BadgerDB, a key-value database in Go, with rare range scans.",
        source: "Aspen 4.1.3, Fig. 7",
        text: "get: 99% 5us, scan: 1% 800us",
    },
    Preset {
        name: "syrup",
        summary: "RocksDB over UDP sockets, rare scans. The paper's gets last 10 to 12 us: the middle is taken.",
        source: "Syrup 5.2.1, Fig. 6",
        text: "get: 99.5% 11us, scan: 0.5% 700us",
    },
    Preset {
        name: "syrup-50-50",
        summary: "The same with as many scans as gets, where threads and sockets are scheduled together.",
        source: "Syrup 5.3, Fig. 8",
        text: "get: 50% 11us, scan: 50% 700us",
    },
    Preset {
        name: "gis",
        summary: "A map server's light, medium and heavy routes. In the paper a connection is of one kind; \
                  here each request is drawn anew, which spreads the heavy ones.",
        source: "SKQ 6.5, Fig. 6",
        text: "light: 95% 10us, medium: 4% 50us, heavy: 1% 200us",
    },
    Preset {
        name: "zipf-85-12-3",
        summary: "The heavier mix on which SKQ meets Shenango.",
        source: "SKQ 6.9, Fig. 11",
        text: "light: 85% 10us, medium: 12% 50us, heavy: 3% 200us",
    },
    Preset {
        name: "zippydb",
        summary: "RocksDB under Facebook's ZippyDB load. The paper gives 3 % seeks and no service times; those \
                  here are assumptions, derived from its 12 threads and peaks: 737,000 requests/s without \
                  seeks are 16.3 us a request, and 126,000 with them leave 2.65 ms for a seek (kernel's work \
                  included). Gets to puts as in db_bench's model of ZippyDB, 83 to 14.",
        source: "SKQ 6.6, Fig. 7 and 8; Cao et al., FAST '20",
        text: "get: 83% 16.3us, put: 14% 16.3us, seek: 3% 2.65ms",
    },
    Preset {
        name: "usr",
        summary: "Memcached with next to no sets. The paper gives the shares and no service time: 1 us for \
                  both is an assumption, by the order of an in-memory get (Aspen 4.1.1).",
        source: "Skyloft 5.3, Fig. 8a; Atikoglu et al., SIGMETRICS '12",
        text: "get: 99.8% 1us, set: 0.2% 1us",
    },
    Preset {
        name: "etc",
        summary: "Memcached with the usual share of sets, 30 gets to one. The paper calls the service times \
                  nearly uniform and gives none: 10.9 us for both is an assumption, from 12 threads at \
                  1.1 million requests/s (kernel's work included).",
        source: "SKQ 6.2 and 6.4, Fig. 3 and 5; Atikoglu et al., SIGMETRICS '12",
        text: "get: 96.8% 10.9us, set: 3.2% 10.9us",
    },
    Preset {
        name: "search",
        summary: "Google Search's three kinds of query. The paper gives neither shares nor times, so that all \
                  figures are assumptions: thirds; exponential times; 17.5 us for B, which hardly computes, \
                  the middle of the 5 to 30 us that some threads run before they block (section 5); 1 ms for A \
                  and C, well above the 100 us that it pays to wait for a near core.",
        source: "ghOSt 4.4, Fig. 8",
        text: "a: 33.3% exp(1ms), b: 33.4% exp(17.5us), c: 33.3% exp(1ms)",
    },
    Preset {
        name: "bimodal-90-10",
        summary: "Two sizes with a mean of 1 us and a second moment of 3.25 us^2: for checks against theory.",
        source: "the figures of queueing theory in this crate's validation",
        text: "short: 90% 500ns, long: 10% 5.5us",
    },
    Preset {
        name: "exp-1us",
        summary: "Exponential with a mean of 1 us: the M of M/M/k, for checks against theory.",
        source: "queueing theory",
        text: "exp(1us)",
    },
];

impl Preset {
    /// Returns the preset called `name`.
    pub fn find(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// Returns its mix.
    pub fn mix(&self) -> Mix {
        self.text.parse().expect("the test of this module parses every preset")
    }
}

/// Returns the error that no preset has the name in `span`.
pub(super) fn unknown(span: Span<'_>) -> GrammarError {
    let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
    let problem = format!("no mix is called `{}`", span.text());
    span.wrong(
        &problem,
        &format!("shares and times, or one of {}", names.join(", ")),
        PRESETS[0].text,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_the_papers() {
        let us = [
            ("shinjuku-99.5-0.5", 53.98),
            ("rocksdb-50-50", 295.975),
            ("aspen-rocksdb", 13.95),
            ("aspen-rocksdb-99.5", 2.295),
            ("dataframe", 73.0),
            ("badger", 12.95),
            ("syrup", 14.445),
            ("syrup-50-50", 355.5),
            ("gis", 13.5),
            ("zipf-85-12-3", 20.5),
            ("zippydb", 95.311),
            ("usr", 1.0),
            ("etc", 10.9),
            ("search", 671.845),
            ("bimodal-90-10", 1.0),
            ("exp-1us", 1.0),
        ];
        assert_eq!(
            us.map(|(name, _)| name).as_slice(),
            PRESETS.iter().map(|p| p.name).collect::<Vec<_>>()
        );
        for (name, mean) in us {
            let is = Preset::find(name).unwrap().mix().mean() / 1e3;
            assert!((is - mean).abs() < 1e-9, "{name}: {is} for {mean}");
        }
    }

    /// 12 threads over the peaks that the paper reports with and without seeks.
    #[test]
    fn zippydb_meets_the_peaks_it_was_derived_from() {
        let mix = Preset::find("zippydb").unwrap().mix();
        let peak = |mean_ns: f64| 12.0 / mean_ns * 1e9;
        assert!((peak(mix.mean()) / 126_000.0 - 1.0).abs() < 0.01);
        assert!((peak(mix.parts()[0].service.mean()) / 737_000.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn second_moments_of_the_mixes_for_theory() {
        let mix = |name| Preset::find(name).unwrap().mix();
        assert!((mix("bimodal-90-10").moment(2) / 1e6 - 3.25).abs() < 1e-9);
        assert!((mix("exp-1us").scv() - 1.0).abs() < 1e-12);
        assert!((mix("shinjuku-99.5-0.5").scv() - 170.6).abs() < 0.05);
    }
}
