"""Runs: what a scenario can be made of, and what an outcome contains."""

import json
import pathlib
import pickle

import numpy as np
import pytest

import heddle_sim

TEXT = """
policy = "round-robin:quantum=5us"
requests = 2_000
seed = 7

[machine]
cpus = 4

[workload]
mix = "get: 90% 1us, scan: 10% 50us"
load = 0.7
"""

KEYS = {
    "policy": "round-robin:quantum=5us",
    "requests": 2_000,
    "seed": 7,
    "machine": {"cpus": 4},
    "workload": {"mix": "get: 90% 1us, scan: 10% 50us", "load": 0.7},
}


@pytest.fixture(scope="module")
def outcome():
    return heddle_sim.run(TEXT)


def test_text_dict_and_path_are_the_same_scenario(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    expected = heddle_sim.Scenario(TEXT)
    assert heddle_sim.Scenario(KEYS) == expected
    assert heddle_sim.Scenario(path) == expected
    assert heddle_sim.Scenario(str(path)) == expected
    assert heddle_sim.Scenario(expected) == expected


def test_a_scenario_survives_print_and_pickle():
    scenario = heddle_sim.Scenario(TEXT)
    assert heddle_sim.Scenario(scenario.to_toml()) == scenario
    assert pickle.loads(pickle.dumps(scenario)) == scenario


def test_every_shipped_scenario_can_be_had():
    assert heddle_sim.shipped()["shinjuku"]
    for name in heddle_sim.shipped():
        assert heddle_sim.Scenario(name).to_toml()


def test_overrides_by_dots_tables_and_dicts_of_numpy_scalars_are_the_same():
    expected = heddle_sim.Scenario(TEXT.replace("cpus = 4", "cpus = 8"))
    assert heddle_sim.Scenario(TEXT, machine={"cpus": 8}) == expected
    assert heddle_sim.Scenario(TEXT, **{"machine.cpus": np.int64(8)}) == expected
    assert heddle_sim.Scenario(TEXT) != expected
    workload = {"bound": np.True_, "load": np.float32(0.5), "steering": np.str_("random")}
    bound = heddle_sim.Scenario(TEXT, workload=workload)
    assert "bound = true" in bound.to_toml() and "load = 0.5" in bound.to_toml()


def test_equal_scenarios_have_equal_outcomes(outcome):
    assert heddle_sim.run(KEYS) == outcome
    assert heddle_sim.run(TEXT, seed=8) != outcome
    assert outcome.scenario == heddle_sim.Scenario(TEXT)


def test_an_outcome_agrees_with_itself(outcome):
    assert outcome.parts == ["get", "scan"]
    assert outcome.unstable is None
    assert sum(outcome.shares.values()) == pytest.approx(1)
    assert outcome.counts["done"] >= 2_000
    assert outcome.quantile("all", 0.99) == outcome.p99.value == float(outcome.p99)
    assert outcome.slowdown_quantile("all", 0.999) == outcome.slowdown_p999.value
    assert outcome.p99.interval == (
        outcome.p99.value - outcome.p99.half_width,
        outcome.p99.value + outcome.p99.half_width,
    )
    done_per_s = outcome.counts["done"] / outcome.time_ns * 1e9
    assert outcome.throughput == pytest.approx(done_per_s)


@pytest.mark.parametrize("part", ["all", "get", "scan"])
def test_histograms_tell_the_quantiles(outcome, part):
    ends, counts = outcome.histogram(part)
    assert ends.dtype == counts.dtype == np.uint64
    assert np.all(np.diff(ends.astype(np.int64)) > 0)
    for q in (0.25, 0.5, 0.75, 1.0):  # no rounding of the rank
        at = np.searchsorted(np.cumsum(counts), np.ceil(q * counts.sum()))
        assert ends[at] == outcome.quantile(part, q)
    assert counts.sum() == outcome.summary(part)["count"]

    slowdowns, counts = outcome.slowdown_histogram(part)
    assert slowdowns.dtype == np.float64
    assert slowdowns[0] >= 1 and slowdowns[-1] == outcome.slowdown_quantile(part, 1)
    assert counts.sum() == outcome.summary(part)["count"]


def test_the_parts_sum_to_all(outcome):
    count = {part: outcome.histogram(part)[1].sum() for part in ("all", "get", "scan")}
    assert count["get"] + count["scan"] == count["all"] == 2_000
    assert outcome.wait_histogram()[1].sum() == 2_000


def test_an_outcome_as_a_dict_is_json(outcome):
    written = json.loads(json.dumps(outcome.to_dict()))
    assert written["p99_ns"] == {"value": outcome.p99.value, "half_width": outcome.p99.half_width}
    assert list(written["parts"]) == ["all", "get", "scan"]
    assert written["parts"]["scan"] == outcome.summary("scan")
    assert heddle_sim.Scenario(written["scenario"]) == outcome.scenario


def test_the_simulator_agrees_with_theory():
    """M/M/1: the mean response at a load of 0.5 is twice the service time."""
    keys = {"policy": "fifo", "requests": 200_000, "machine": {"cpus": 1}, "workload": {"mix": "exp(1us)", "load": 0.5}}
    mean = heddle_sim.run(keys).mean
    assert mean.value == pytest.approx(2_000, rel=0.02)


def test_a_run_without_a_steady_state_says_so():
    overloaded = heddle_sim.run(TEXT, costs={"switch": "100us"})
    assert overloaded.unstable and overloaded.unstable in repr(overloaded)


@pytest.mark.parametrize(
    ("source", "overrides", "expected"),
    [
        ("policy = 'fifo'\nmachine.cpus = 0", {}, "scenario:2:16: `machine.cpus`: 0 will not do"),
        ("policy = 'fifo'\nmachin.cpus = 1", {}, "scenario:2:"),
        ("no-such-file.toml", {}, "no-such-file.toml: cannot be read"),
        ({"policy": "fifo"}, {}, "`machine.cpus` is missing"),
        (TEXT, {"policy": "fifi"}, "policy=fifi: `policy`: no policy `fifi`"),
        (TEXT, {"workload.load": 1.5}, "workload.load=1.5: `workload.load`: load above capacity"),
        (TEXT, {"machine": {"cpus": 8.0}}, "machine.cpus=8.0"),
        (TEXT, {"requests": -1}, "requests=-1"),
        (TEXT, {"workload.load": float("nan")}, "`workload.load`"),
    ],
)
def test_bad_scenarios_are_refused_as_by_the_command(source, overrides, expected):
    with pytest.raises(heddle_sim.ScenarioError) as error:
        heddle_sim.run(source, **overrides)
    assert expected in str(error.value)
    assert isinstance(error.value, ValueError)
    assert type(pickle.loads(pickle.dumps(error.value))) is heddle_sim.ScenarioError


def test_an_error_in_a_file_names_it(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TEXT.replace("cpus = 4", "cpus = 4000"))
    with pytest.raises(heddle_sim.ScenarioError) as error:
        heddle_sim.Scenario(path)
    assert str(error.value).startswith(f"{path}:7:8: `machine.cpus`")


def test_a_trace_is_looked_for_beside_the_scenario(tmp_path):
    (tmp_path / "mine.toml").write_text("policy = 'fifo'\nmachine.cpus = 1\nworkload.arrivals = 'trace(no.csv)'\n")
    with pytest.raises(heddle_sim.ScenarioError, match="no.csv"):
        heddle_sim.run(pathlib.Path(tmp_path, "mine.toml"))


@pytest.mark.parametrize("source", [3, None, ["fifo"]])
def test_other_sources_are_type_errors(source):
    with pytest.raises(TypeError):
        heddle_sim.Scenario(source)


def test_other_values_are_type_errors():
    with pytest.raises(TypeError, match="`policy`: expected a str, int, float or bool, not list"):
        heddle_sim.Scenario(TEXT, policy=["fifo"])


def test_parts_and_quantiles_are_checked(outcome):
    with pytest.raises(KeyError, match="expected one of all, get, scan"):
        outcome.histogram("set")
    with pytest.raises(ValueError, match="a quantile of 99; expected 0 to 1"):
        outcome.quantile("all", 99)
