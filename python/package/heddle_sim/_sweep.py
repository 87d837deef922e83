"""Many scenarios, one table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Union

import pandas as pd

from ._clients import completed
from ._native import Outcome, Scenario
from ._types import Client, Source

Row = dict[str, Any]

#: Columns whose value for all requests has a confidence interval, and the name of the estimate.
ESTIMATED = {
    "mean_ns": "mean",
    "p99_ns": "p99",
    "p999_ns": "p999",
    "slowdown_p999": "slowdown_p999",
}


def sweep(
    scenario: Source,
    over: Mapping[str, Iterable[Any]],
    *,
    seeds: Union[int, Iterable[int], None] = None,
    client: Client = None,
    progress: bool = False,
    **overrides: Any,
) -> pd.DataFrame:
    """Run a scenario with every combination of values.

    Every combination is read and checked before the first one runs. Equal arguments give equal tables, wherever
    they are run.

    Parameters
    ----------
    scenario : str, os.PathLike, dict or Scenario
        As for :class:`Scenario`.
    over : mapping of str to iterable
        The values to take for each key, such as
        ``{"workload.load": np.linspace(0.1, 0.9, 9), "policy": ["fifo", ...]}``.
        A key named here may be missing in the scenario.
    seeds : int or iterable of int, optional
        Short for another key ``seed``: these, or 1 to this number. By default the scenario's own.
    client : concurrent.futures.Executor, distributed.Client, module ray or "ray", optional
        Where to run them: by default in a thread for each CPU of this process.
    progress : bool
        Whether to show a bar (needs tqdm).
    **overrides
        Values laid over the scenario for all combinations.

    Returns
    -------
    pandas.DataFrame
        A row for each combination and part, ``"all"`` first, in the order of ``over`` with the last key fastest.
        Columns are the keys of ``over``, ``part``, and the numbers; see the notes. ``attrs["scenario"]`` is the
        first combination as the text of a file.

    Raises
    ------
    ScenarioError
        For the first combination that the command would refuse.

    Notes
    -----
    Columns ending in ``_ns`` are times in ns, those in ``_per_s`` rates. The mean, p99, p99.9 and the slowdown's
    p99.9 of all requests each have a column ``_half_width`` next to them: half of the 95 % confidence interval; it is
    NaN for single parts. If ``unstable`` is not NA, the run had no steady state, and its numbers must not be quoted.
    """
    axes = {key: list(values) for key, values in over.items()}
    if seeds is not None:
        axes["seed"] = list(seeds if isinstance(seeds, Iterable) else range(1, seeds + 1))
    points = [dict(zip(axes, values)) for values in itertools.product(*axes.values())]
    scenarios = [Scenario(scenario, **{**overrides, **point}) for point in points]

    results: list[list[Row]] = [[] for _ in points]
    for index, rows in _shown(completed(run_rows, scenarios, client), len(points), progress):
        results[index] = rows
    table = [{**point, **row} for point, rows in zip(points, results) for row in rows]
    return _frame(table, scenarios)


def run_rows(scenario: Scenario) -> list[Row]:
    """What a point of a sweep adds to the table; runs wherever the client says, and sends back numbers alone."""
    outcome = scenario.run()
    whole = _whole(outcome)
    return [{"part": part, **_part(outcome, part), **whole} for part in ["all", *outcome.parts]]


def _part(outcome: Outcome, part: str) -> Row:
    """The numbers of a part, each that has a confidence interval with half its width behind it."""
    row: Row = {}
    for column, number in outcome.summary(part).items():
        row[column] = number
        if column in ESTIMATED:
            estimate = getattr(outcome, ESTIMATED[column])
            row[f"{column}_half_width"] = estimate.half_width if part == "all" else math.nan
    return row


def _whole(outcome: Outcome) -> Row:
    return {
        "offered_per_s": outcome.offered,
        "throughput_per_s": outcome.throughput,
        **{f"share_{name}": share for name, share in outcome.shares.items()},
        "preemptions": outcome.counts["preemptions"],
        "unstable": outcome.unstable,
    }


def _shown(results: Iterator[Any], total: int, progress: bool) -> Iterable[Any]:
    if not progress:
        return results
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

    shown: Iterable[Any] = tqdm(results, total=total, unit="run")
    return shown


def _frame(table: list[Row], scenarios: list[Scenario]) -> pd.DataFrame:
    frame = pd.DataFrame(table)
    if not frame.empty:
        frame = frame.astype({"part": "string", "unstable": "string"})
        frame.attrs["scenario"] = scenarios[0].to_toml()
    return frame
