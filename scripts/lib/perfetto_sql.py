"""Asks Perfetto's own processor about the trace of `crates/export/examples/trace.rs`."""

import sys

from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

# Each CPU's first switch is not counted: what ran before it is unknown.
EXPECTED = {
    "select count(*) n from sched where utid": 40_000,
    "select count(*) n from slice where name like 'task %' and dur = 400": 1_000,
    "select count(*) n from slice where name = 'request' and dur = 999": 499,
    "select count(*) n from stats where severity in ('error', 'data_loss') and value > 0": 0,
    "select min(ts) n from sched": 1_000_000,
}


def main(processor: str, path: str) -> None:
    """Compares the answers."""
    config = TraceProcessorConfig(bin_path=processor)
    with TraceProcessor(trace=path, config=config) as trace:
        for query, expected in EXPECTED.items():
            found = next(iter(trace.query(query))).n
            assert found == expected, f"{query}: {found}, not {expected}"
    print(f"perfetto: {len(EXPECTED)} answers in SQL")


main(*sys.argv[1:])
