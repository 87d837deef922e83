"""One scenario, one outcome."""

from __future__ import annotations

from typing import Any

from ._native import Outcome, Scenario
from ._types import Source


def run(scenario: Source, **overrides: Any) -> Outcome:
    """Run a scenario.

    Deterministic: equal scenarios give equal outcomes. Memory grows with the tasks in the system, not with the
    length of the run. Other Python threads run meanwhile.

    Parameters
    ----------
    scenario : str, os.PathLike, dict or Scenario
        As for :class:`Scenario`.
    **overrides
        Values laid over it: ``policy="fifo"``, ``machine={"cpus": 8}`` or ``**{"machine.cpus": 8}``.

    Raises
    ------
    ScenarioError
        If the command would refuse the scenario, in the same words.

    Examples
    --------
    >>> outcome = run("shinjuku", requests=1_000)
    >>> sum(outcome.shares.values())
    1.0
    """
    return Scenario(scenario, **overrides).run()
