"""Sweeps on this machine: their table, and that it says what the runs say."""

import numpy as np
import pandas as pd
import pytest
from test_run import TEXT

import heddle_sim

POLICIES = ["fifo", "round-robin:quantum=5us"]
OVER = {"policy": POLICIES, "workload.load": np.linspace(0.2, 0.8, 3)}


@pytest.fixture(scope="module")
def frame():
    return heddle_sim.sweep(TEXT, OVER, requests=500)


def test_there_is_a_row_for_each_point_and_part(frame):
    assert len(frame) == 2 * 3 * 3
    assert list(frame.columns[:3]) == ["policy", "workload.load", "part"]
    assert list(frame["part"][:3]) == ["all", "get", "scan"]
    assert list(frame["workload.load"][:9:3]) == pytest.approx([0.2, 0.5, 0.8])
    assert list(frame["policy"].unique()) == POLICIES


def test_the_columns_have_types(frame):
    assert frame["workload.load"].dtype == np.float64
    assert frame["part"].dtype == frame["unstable"].dtype == pd.StringDtype()
    for column in ("count", "p99_ns", "preemptions"):
        assert frame[column].dtype == np.int64
    for column in ("throughput_per_s", "p99_ns_half_width", "slowdown_p999", "share_idle"):
        assert frame[column].dtype == np.float64
    assert frame["unstable"].isna().all()


def test_intervals_are_those_of_all_requests(frame):
    known = frame.loc[frame["part"] == "all", "p99_ns_half_width"]
    assert known.notna().all() and (known >= 0).all()
    assert frame.loc[frame["part"] != "all", "p99_ns_half_width"].isna().all()


def test_a_sweep_says_what_the_runs_say(frame):
    row = frame.set_index(["policy", "workload.load", "part"]).loc[("fifo", 0.5)]
    outcome = heddle_sim.run(TEXT, requests=500, policy="fifo", workload={"load": 0.5})
    for part in ("all", "get", "scan"):
        for name, number in outcome.summary(part).items():
            assert row.loc[part, name] == number
    assert row.loc["all", "p99_ns_half_width"] == outcome.p99.half_width
    assert row.loc["get", "throughput_per_s"] == outcome.throughput


def test_equal_sweeps_have_equal_tables(frame):
    pd.testing.assert_frame_equal(heddle_sim.sweep(TEXT, OVER, requests=500), frame)


def test_the_table_carries_its_scenario(frame):
    first = heddle_sim.Scenario(frame.attrs["scenario"])
    assert first == heddle_sim.Scenario(TEXT, requests=500, policy="fifo", workload={"load": 0.2})


def test_what_is_swept_may_be_missing_in_the_scenario():
    bare = {"machine": {"cpus": 2}, "requests": 200, "workload": {"mix": "exp(1us)"}}
    frame = heddle_sim.sweep(bare, {"policy": ["fifo"], "workload.load": [0.5]})
    assert list(frame["part"]) == ["all", "exp(1us)"]


@pytest.mark.parametrize("seeds", [3, [1, 2, 3], range(1, 4), np.int64(3)])
def test_seeds_are_one_more_key(seeds):
    frame = heddle_sim.sweep(TEXT, {}, seeds=seeds, requests=200)
    assert list(frame.loc[frame["part"] == "all", "seed"]) == [1, 2, 3]
    assert frame["mean_ns"].nunique() > 3


def test_a_bad_point_is_refused_before_any_is_run():
    class Never:
        def map(self, *_):
            raise AssertionError("nothing may be run")

        cancel = map

    with pytest.raises(heddle_sim.ScenarioError, match="workload.load=1.2: .*load above capacity"):
        heddle_sim.sweep(TEXT, {"workload.load": [0.5, 1.2]}, client=Never())


def test_a_point_without_a_steady_state_is_marked():
    frame = heddle_sim.sweep(TEXT, {"costs.switch": ["0ns", "100us"]})
    assert list(frame["unstable"].isna()) == [True] * 3 + [False] * 3


def test_nothing_to_sweep_over_gives_an_empty_table():
    assert heddle_sim.sweep(TEXT, {"policy": []}).empty


def test_progress_is_shown(capsys, frame):
    pd.testing.assert_frame_equal(heddle_sim.sweep(TEXT, OVER, requests=500, progress=True), frame)
    assert "6/6" in capsys.readouterr().err
