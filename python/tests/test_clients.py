"""Where sweeps run: each client gives the table that this machine's threads give."""

import concurrent.futures as futures
import os
import signal
import subprocess
import sys

import pandas as pd
import pytest
from test_run import TEXT

import heddle_sim
from heddle_sim._clients import completed

OVER = {"policy": ["fifo", "work-stealing"], "workload.load": [0.3, 0.6]}


def swept(client):
    return heddle_sim.sweep(TEXT, OVER, requests=500, client=client)


@pytest.fixture(scope="module")
def expected():
    return swept(None)


def broken():
    """A scenario that reads well and cannot be run."""
    return {"policy": "fifo", "machine": {"cpus": 1}, "workload": {"arrivals": "trace(no.csv)"}}


def test_a_pool_of_processes(expected):
    with futures.ProcessPoolExecutor(2) as pool:
        pd.testing.assert_frame_equal(swept(pool), expected)


def test_dask(expected):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            pd.testing.assert_frame_equal(swept(client), expected)
            with pytest.raises(heddle_sim.ScenarioError, match="no.csv"):
                heddle_sim.sweep(broken(), {"seed": [1]}, client=client)


def test_ray(expected, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        pd.testing.assert_frame_equal(swept(ray), expected)
        pd.testing.assert_frame_equal(swept("ray"), expected)
        with pytest.raises(heddle_sim.ScenarioError, match="no.csv"):
            heddle_sim.sweep(broken(), {"seed": [1]}, client=ray)
    finally:
        ray.shutdown()


def test_neither_is_imported_unless_it_is_given():
    code = "import heddle_sim, sys; assert not {'distributed', 'dask', 'ray', 'tqdm'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_something_else_is_no_client():
    with pytest.raises(TypeError, match="client: expected a concurrent.futures.Executor"):
        swept(object())


class Held(futures.Executor):
    """Runs the first call alone and holds the others."""

    def __init__(self):
        self.held = []

    def submit(self, function, item):
        self.held.append(futures.Future())
        if len(self.held) == 1:
            self.held[0].set_result(function(item))
        return self.held[-1]


def test_who_stops_early_stops_the_rest():
    pool = Held()
    results = completed(str, [1, 2, 3], pool)
    assert next(results) == (0, "1")
    results.close()
    assert [future.cancelled() for future in pool.held] == [False, True, True]


def test_ctrl_c_ends_a_sweep():
    def interrupt(_):
        os.kill(os.getpid(), signal.SIGINT)

    # A shell starts what is in its background with the signal ignored, and Python leaves that as it is.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            for _ in completed(interrupt, range(3)):
                pass
    finally:
        signal.signal(signal.SIGINT, before)
