//! Published curves.

/// A point of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Requests per second.
    pub load: f64,
    /// The value, in the figure's unit.
    pub value: f64,
    /// The batch application's share of the CPUs, if it was recorded.
    pub batch_share: Option<f64>,
}

/// One system's curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The system, as its authors call it: `skyloft-30us`.
    pub system: String,
    /// In order of load.
    pub points: Vec<Point>,
}

/// Skyloft, Fig. 7a: p99 in ns.
pub fn synthetic() -> Vec<Curve> {
    read(include_str!("../../data/synthetic_99.5_4us_0.5_10ms.csv"))
}

/// Skyloft, Fig. 7b and 7c: p99 in ns, and the batch application's share.
pub fn synthetic_with_batch() -> Vec<Curve> {
    read(include_str!("../../data/synthetic_lcbe_30us.csv"))
}

/// Skyloft, Fig. 8b: p99.9 of slowdown.
pub fn rocksdb() -> Vec<Curve> {
    read(include_str!("../../data/rocksdb_50get_50scan.csv"))
}

/// Skyloft, Fig. 5: p99 from wake-up to running, in us, by the number of workers (which is in `load`).
pub fn schbench() -> Vec<Curve> {
    read(include_str!("../../data/schbench_wakeup.csv"))
}

fn read(csv: &str) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for line in csv.lines().skip(1) {
        let mut fields = line.split(',');
        let system = fields.next().expect("a line has a first field");
        let mut number = || fields.next().and_then(|field| field.parse::<f64>().ok());
        let (load, value) = (number(), number());
        let (Some(load), Some(value)) = (load, value) else { panic!("not a point: `{line}`") };
        let point = Point { load, value, batch_share: number() };
        match curves.iter_mut().find(|curve| curve.system == system) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve { system: system.into(), points: vec![point] }),
        }
    }
    // One of the artefact's curves has a stretch measured twice.
    curves.iter_mut().for_each(|c| c.points.sort_by(|a, b| a.load.total_cmp(&b.load)));
    curves
}

impl Curve {
    /// Returns the quantum in the system's name: `10us` of `skyloft-10us`; `None` if nothing is
    /// preempted.
    pub fn quantum(&self) -> Option<&str> {
        let plain = self.system.trim_end_matches("_utimer");
        plain.rsplit(['-', '_']).next().filter(|last| last.ends_with("us"))
    }

    /// Returns the load at which the curve first exceeds `limit`, interpolated between its points;
    /// `None` if it does not.
    pub fn saturation(&self, limit: f64) -> Option<f64> {
        let above = self.points.iter().position(|point| point.value > limit)?;
        let (low, high) = (self.points[above.checked_sub(1)?], self.points[above]);
        let part = match high.value.is_finite() {
            true => (limit / low.value).ln() / (high.value / low.value).ln(),
            false => 0.5,
        };
        Some(low.load + part * (high.load - low.load))
    }

    /// Returns the points before [`Curve::saturation`].
    pub fn below(&self, limit: f64) -> &[Point] {
        let end = self.points.iter().position(|point| point.value > limit);
        &self.points[..end.unwrap_or(self.points.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_are_complete() {
        let count = |curves: &[Curve]| curves.iter().map(|c| c.points.len()).sum::<usize>();
        let all = [synthetic(), synthetic_with_batch(), rocksdb(), schbench()];
        assert_eq!(all.each_ref().map(|curves| curves.len()), [12, 2, 7, 5]);
        assert_eq!(all.each_ref().map(|curves| count(curves)), [264, 26, 127, 73]);
        let points = all.iter().flatten().flat_map(|curve| &curve.points);
        assert!(points.clone().all(|p| p.load > 0.0 && p.value > 0.0));
    }

    #[test]
    fn quanta_are_read_from_names() {
        let quantum = |system: &str| {
            Curve { system: system.into(), points: vec![] }.quantum().map(str::to_owned)
        };
        assert_eq!(quantum("skyloft-10us").as_deref(), Some("10us"));
        assert_eq!(quantum("skyloft_5us_utimer").as_deref(), Some("5us"));
        assert_eq!(
            (quantum("skyloft-inf"), quantum("cfs"), quantum("skyloft_nopre")),
            (None, None, None)
        );
    }

    #[test]
    fn saturation_lies_between_the_points_around_it() {
        let point = |load, value| Point { load, value, batch_share: None };
        let points = vec![point(1.0, 10.0), point(2.0, 100.0), point(3.0, 1000.0)];
        let curve = Curve { system: "x".into(), points };
        assert!((curve.saturation(316.227_766).unwrap() - 2.5).abs() < 1e-6);
        assert_eq!((curve.saturation(1e6), curve.below(100.0).len()), (None, 2));
    }
}
