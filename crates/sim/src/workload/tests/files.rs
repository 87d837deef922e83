//! Files: written files are read back, and errors name the place.

use super::Scratch;
use crate::workload::{Empirical, FileError, TraceReader, TraceRequest, TraceWriter};
use heddle_core::{Class, Ns};
use proptest::collection::vec;
use proptest::prelude::*;
use std::fmt::Debug;
use std::path::Path;

/// Checks each text's error, from its line on.
#[track_caller]
fn refuses<T: Debug>(read: fn(&Path) -> Result<T, FileError>, name: &str, cases: &[(&[u8], &str)]) {
    for (i, (bytes, expected)) in cases.iter().enumerate() {
        let file = Scratch::new(&format!("{name}-{i}"), bytes);
        let message = read(file.path()).unwrap_err().to_string();
        let rest = message.strip_prefix(file.path().to_str().unwrap()).unwrap();
        assert!(rest.starts_with(expected), "{rest}\n  for {expected}");
    }
}

#[test]
fn errors_in_traces_name_their_place() {
    const TIME: &str = "expected whole nanoseconds from 0, or a time such as 1.5us";
    refuses(
        TraceReader::check,
        "trace",
        &[
            (
                b"",
                ": there is no header; expected arrival,service[,class][,name][,connection][,executor][,wait]",
            ),
            (
                b"# nothing\n\n",
                ": there is no header; expected arrival,service[,class][,name][,connection][,executor][,wait]",
            ),
            (b"arrival,service\n", ": there are no rows below the header; expected at least 1"),
            (b"0,950\n", ":1: column 1, `0`, is unknown or there twice; expected arrival,service["),
            (b"arrival\n1\n", ":1: the header has no column `service`; expected arrival,service["),
            (b"# a\narrival,service,klass\n", ":2: column 3, `klass`, is unknown or there twice"),
            (b"arrival,service,service\n", ":1: column 3, `service`, is unknown or there twice"),
            (b"arrival,service\n1\n", ":2: 1 cells in this row; expected 2 as in the header"),
            (b"arrival,service\n5,1,3\n", ":2: 3 cells in this row; expected 2 as in the header"),
            (b"# c\n\narrival,service\n1,1\n\n# d\n2,x\n", &format!(":7: service `x`; {TIME}")),
            (b"arrival,service\n1,\n", &format!(":2: service ``; {TIME}")),
            (b"arrival,service\n-5,1\n", &format!(":2: arrival `-5`; {TIME}")),
            (b"arrival,service\n1,-1us\n", &format!(":2: service `-1us`; {TIME}")),
            (
                b"arrival,service\n99999999999999999999,1\n",
                &format!(":2: arrival `99999999999999999999`; {TIME}"),
            ),
            (b"arrival,service\r\n1,1\r\n2,0\r\n", ":3: service `0`; expected a time above zero"),
            (
                b"arrival,service\r\n5,1\r\n# d\r\n3us,1\r\n2us,1",
                ":5: arrival 2us is before the one above it, 3us",
            ),
            (
                b"arrival,service,class\n5,1,256\n",
                ":2: class `256`; expected a whole number from 0 to 255",
            ),
            (b"arrival,service,name\n5,1,\xff\n", ":2: name is not UTF-8; expected text"),
            (
                b"arrival,service,connection\n5,1,-3\n",
                ":2: connection `-3`; expected a whole number from 0 to 4294967295",
            ),
            (b"wait,arrival,service\nlong,5,1\n", &format!(":2: wait `long`; {TIME}")),
        ],
    );
}

#[test]
fn errors_in_tables_name_their_place() {
    refuses(
        Empirical::open,
        "table",
        &[
            (b"service\n", ": there are no rows below the header; expected at least 1"),
            (
                b"service,weight\n1us,0\n",
                ":2: weight `0`; expected a number above 0 and at most 1e15",
            ),
            (b"service,weight\n1us,nan\n", ":2: weight `nan`; expected a number above 0"),
            (b"service\n0\n", ":2: service `0`; expected a time above zero"),
            (b"quantile,service\n", ": there are no rows below the header; expected at least 2"),
            (b"quantile,service\n0,1us\n", ": quantile `0`; expected 1 in the last row"),
            (b"quantile,service\n0.1,1us\n", ":2: quantile `0.1`; expected 0 in the first row"),
            (
                b"quantile,service\n0,5us\n0.5,4us\n",
                ":3: service `4us`; expected a time not below the last",
            ),
            (
                b"quantile,service\n0,5us\n0,6us\n",
                ":3: quantile `0`; expected a number above the last",
            ),
            (b"quantile,service\n0,5us\n0.5,6us\n", ": quantile `0.5`; expected 1 in the last row"),
            (
                b"quantile,service,weight\n0,5us,1\n",
                ":1: columns `weight` and `quantile` exclude each other",
            ),
        ],
    );
}

#[test]
fn system_errors_name_the_file() {
    let folder = std::env::temp_dir();
    let message = TraceReader::check(&folder).unwrap_err().to_string();
    assert!(message.starts_with(&format!("{}: cannot be read: ", folder.display())), "{message}");
}

#[test]
fn names_are_bounded() {
    let rows: String = (0..300).map(|i| format!("{i},1,kind{i}\n")).collect();
    let file = Scratch::new("names", format!("arrival,service,name\n{rows}").as_bytes());
    let message = TraceReader::check(file.path()).unwrap_err().to_string();
    assert!(message.contains(":258: more than 256 different names"), "{message}");
}

#[test]
fn a_plain_trace_does_not_lose_a_connection_silently() {
    let mut writer = TraceWriter::new(Vec::new()).unwrap();
    let request = TraceRequest { connection: Some(0), service: Ns(1), ..TraceRequest::default() };
    let error = writer.write_request(&request, "get").unwrap_err().to_string();
    assert!(error.contains("of_service"), "{error}");
}

#[test]
fn a_trace_is_summed_up() {
    let text =
        "# two kinds\nservice, arrival, name\n1us, 500, get\n3us, 1us, scan\n\n2us, 2.5us, get\n";
    let file = Scratch::new("summary", text.as_bytes());
    let summary = TraceReader::check(file.path()).unwrap();
    assert_eq!((summary.requests, summary.first, summary.span), (3, Ns(500), Ns(2000)));
    assert_eq!((summary.busy, summary.mean), (Ns::from_us(6), 2e3));
    assert!((summary.second_moment - 14e6 / 3.0).abs() < 1e-6);
    assert_eq!(summary.names, ["get", "scan"]);
    assert_eq!(summary.rate_per_s(), Some(1e6));
}

/// Headers, most of them wrong.
const HEADERS: &str =
    "(arrival|service|name|class|connection|executor|wait|quantile|weight|,){1,6}";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn written_requests_are_read_back(
        rows in vec((any::<u32>(), 1u64..u64::MAX, any::<u8>(), "[a-c,\"#é\n]{1,2}"), 1..50),
    ) {
        let mut at = Ns::ZERO;
        let mut writer = TraceWriter::new(Vec::new()).unwrap();
        let mut written = Vec::new();
        for (gap, service, class, name) in rows {
            at += Ns(u64::from(gap));
            let name = if name.trim().is_empty() { "a" } else { name.trim() };
            writer.write(at, Ns(service), Class(class), name).unwrap();
            written.push((at, Ns(service), Class(class), name.to_string()));
        }
        let file = Scratch::new("written", &writer.finish().unwrap());
        let mut reader = TraceReader::open(file.path()).unwrap();
        for (arrival, service, class, name) in written {
            let read = reader.next().unwrap().unwrap();
            let plain = TraceRequest { arrival, service, class, kind: read.kind, ..TraceRequest::default() };
            prop_assert_eq!(read, plain);
            prop_assert_eq!(&reader.names()[read.kind], &name);
        }
        prop_assert!(reader.next().is_none());
    }

    #[test]
    fn requests_of_a_service_are_read_back(
        rows in vec((any::<u32>(), any::<Option<u32>>(), any::<Option<u32>>(), any::<u64>()), 1..50),
    ) {
        let mut writer = TraceWriter::of_service(Vec::new()).unwrap();
        let mut written = Vec::new();
        for (i, (gap, connection, executor, wait)) in rows.into_iter().enumerate() {
            let arrival = written.last().map_or(Ns::ZERO, |last: &TraceRequest| last.arrival) + Ns(u64::from(gap));
            let (service, class, kind) = (Ns(1 + i as u64), Class(3), 0);
            written.push(TraceRequest { arrival, service, class, kind, connection, executor, wait: Ns(wait) });
            writer.write_request(&written[i], "get").unwrap();
        }
        let file = Scratch::new("service", &writer.finish().unwrap());
        let read: Vec<_> = TraceReader::open(file.path()).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(&read, &written);
        let summary = TraceReader::check(file.path()).unwrap();
        prop_assert_eq!(summary.connections, written.iter().any(|of| of.connection.is_some()));
        prop_assert_eq!(summary.waits, written.iter().any(|of| of.wait > Ns::ZERO));
    }

    /// I2.
    #[test]
    fn no_file_makes_it_panic(head in HEADERS, body in any::<Vec<u8>>()) {
        for header in [&head, "arrival,service,class,name", "service,weight", "quantile,service"] {
            let file = Scratch::new("noise", &[header.as_bytes(), b"\n", &body].concat());
            let _ = (TraceReader::check(file.path()), Empirical::open(file.path()));
        }
    }
}
