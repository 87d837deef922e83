//! Reports: one self-contained file; foreign text never becomes markup; the results can be read back.

use heddle_metrics::{
    Axis, BarChart, Better, Cell, Collector, LinePlot, Panel, Point, Report, Results, Row, Run,
    Series, Table,
};
use proptest::prelude::*;

const HOSTILE: &str =
    "</script></style></title>\"'><img src=x onerror=alert(1)>&amp;<!--\u{2028}]]>";

fn results(name: &str) -> Results {
    let mut collect = Collector::new();
    for (load, value) in [(1e4, 2e4), (2e4, 5e4), (3e4, 8e6)] {
        for system in [name, "tokio"] {
            let run = if value < 1e6 { Run::ok(value) } else { Run::invalid(value, name) };
            collect.at_load(load).add(system, name, name, "ns", run);
        }
    }
    for value in [24.0, 25.0] {
        collect.add(name, name, name, name, Run::ok(value));
    }
    let mut results = Results::here(collect.into_rows());
    results.command = vec![name.into()];
    results.machine.cpu = name.into();
    results
}

fn report(name: &str) -> String {
    let results = results(name);
    let mut table = Table::new(name, [name]);
    table.push(vec![Cell::text(name), Cell::text("beyond the head")]);
    table.notes.push(name.into());
    Report::new(name)
        .headline(name)
        .findings([name.to_owned()])
        .section(name, name)
        .text(name)
        .plot(LinePlot::over_load(&results, name, name, name).caption(name).emphasise(name))
        .bars(BarChart::of(&results, name, name).caption(name).target(name, 20.0))
        .fold(name, name)
        .bars(BarChart::at_load(&results, 1e4, &[(name, name, name)], name))
        .table(table)
        .notes(name)
        .results(results)
        .to_html()
}

/// The tags in order, in a text where every `<` is markup.
fn tags(html: &str) -> Vec<String> {
    let name = |rest: &str| {
        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "/!".contains(*c)).collect()
    };
    html.split('<').skip(1).map(name).collect()
}

#[test]
fn hostile_text_stays_text() {
    let (hostile, harmless) = (report(HOSTILE), report("heddle"));
    assert_eq!(tags(&hostile), tags(&harmless));
    assert!(!hostile.contains("<img"));
    assert_eq!(
        hostile.matches("onerror=alert(1)&gt;").count()
            + hostile.matches("onerror=alert(1)\\u003e").count(),
        hostile.matches("onerror").count()
    );
}

#[test]
fn results_can_be_read_back_from_the_report() {
    for name in [HOSTILE, "heddle"] {
        let html = report(name);
        let read = Results::from_html("report", &html).unwrap();
        assert_eq!(Results { machine: read.machine.clone(), ..results(name) }, read);
    }
}

#[test]
fn the_file_is_self_contained() {
    let html = report("heddle");
    for outside in ["http:", "https:", "src=", "<link", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert!(html.contains("target: 20"));
}

#[test]
fn the_headline_does_not_break_between_number_and_unit() {
    let html = Report::new("r").headline("The p99 of GETs is 403 us, of SCANs 9 ms.").to_html();
    assert!(html.contains("of GETs is 403\u{a0}us, of SCANs 9\u{a0}ms."));
}

#[test]
fn a_folded_section_ends_with_the_next_section() {
    let html = Report::new("r").fold("more", "").text("inside").section("next", "").to_html();
    let position = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(position("inside") < position("</details>"));
    assert!(position("</details>") < position("<h2>next"));
    assert_eq!(html.matches("<details").count(), html.matches("</details>").count());
}

#[test]
fn invalid_points_are_hollow() {
    let html = report("heddle");
    // One point of each of two systems, on the logarithmic and on the linear axis.
    assert_eq!(
        html.matches("class=\"pt c0 hollow\"").count()
            + html.matches("class=\"pt c1 hollow\"").count(),
        4
    );
    assert!(html.contains("do not quote them"));
}

#[test]
fn without_results_nothing_is_embedded() {
    let html = Report::new("empty").to_html();
    assert!(Results::from_html("empty", &html).is_err());
}

prop_compose! {
    fn point()(values in prop::array::uniform4(prop_oneof![-1e3f64..1e12, Just(f64::NAN), Just(0.0)]),
               valid: bool) -> Point {
        let [x, y, min, max] = values;
        Point { x, y, min, max, valid, note: String::new() }
    }
}

proptest! {
    /// Whatever the values, the figure contains only finite numbers and no negative widths.
    #[test]
    fn any_curve_is_drawn(curves in prop::collection::vec(prop::collection::vec(point(), 0..6), 0..12)) {
        let axis = |unit: &str| Axis { label: "l".into(), unit: unit.into() };
        let series = |(n, points): (usize, Vec<Point>)| Series { name: format!("s{n}"), points, emphasis: n == 0 };
        let series = curves.into_iter().enumerate().map(series).collect();
        let plot = LinePlot { title: "t".into(), x: axis("1/s"), y: axis("ns"), series, caption: String::new() };
        let html = Report::new("r").plot(plot).to_html();
        let drawn = &html[html.find("<svg").unwrap()..html.rfind("</svg>").unwrap()];
        prop_assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
    }

    #[test]
    fn any_bars_are_drawn(values in prop::collection::vec(prop_oneof![-1e3f64..1e12, Just(0.0)], 0..6)) {
        let bars = values.iter().map(|&value| heddle_metrics::Bar {
            system: "s".into(), value, min: value - 1.0, max: value + 1.0, valid: true, note: String::new(),
        });
        let (case, unit, bars) = ("c".into(), "ns".into(), bars.collect());
        let panel = Panel { case, unit, better: Better::Lower, bars, target: None };
        let chart = BarChart { title: "t".into(), panels: vec![panel], caption: String::new() };
        let html = Report::new("r").bars(chart).to_html();
        let drawn = &html[html.find("<svg").unwrap()..html.rfind("</svg>").unwrap()];
        prop_assert!(!drawn.contains("NaN") && !drawn.contains("width=\"-") && !drawn.contains("inf"));
    }
}

#[test]
fn a_report_on_disk_is_read_like_a_result() {
    let path = std::env::temp_dir().join(format!("heddle-report-{}.html", std::process::id()));
    let results = results("heddle");
    Report::new("r").results(results.clone()).write(&path).unwrap();
    let read: Results = Results::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let rows: &[Row] = &read.rows;
    assert_eq!(rows, results.rows);
}
