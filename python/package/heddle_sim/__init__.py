"""Heddle's simulator: what a scheduling policy would do on a machine that is not at hand.

>>> import heddle_sim
>>> outcome = heddle_sim.run("shinjuku", requests=10_000, **{"workload.load": 0.6})
>>> outcome.quantile("short", 0.99) < outcome.quantile("long", 0.5)
True

``run`` gives one outcome, ``sweep`` a table over many values, on this machine's CPUs or on a Dask or Ray cluster.
"""

from __future__ import annotations

from ._native import Estimate, Outcome, Scenario, ScenarioError, __version__, shipped
from ._run import run
from ._sweep import sweep

__all__ = [
    "Estimate",
    "Outcome",
    "Scenario",
    "ScenarioError",
    "__version__",
    "run",
    "shipped",
    "sweep",
]
