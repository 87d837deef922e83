"""Where the points of a sweep run. Distribution is left to others: a pool, Dask or Ray."""

from __future__ import annotations

import concurrent.futures as futures
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ._types import Client

In = TypeVar("In")
Out = TypeVar("Out")


def completed(
    function: Callable[[In], Out], items: Sequence[In], client: Client = None
) -> Iterator[tuple[int, Out]]:
    """Call ``function`` with each of ``items``; yield the index and result of each as it ends.

    If the consumer stops early, by an error or Ctrl-C, items that have not started are cancelled.

    Raises
    ------
    TypeError
        For a client of an unknown kind.
    """
    if client is None:
        return _local(function, items)
    if isinstance(client, futures.Executor):
        return _pool(function, items, client)
    if client == "ray":
        import ray

        return _ray(function, items, ray)
    if hasattr(client, "remote") and hasattr(client, "wait"):
        return _ray(function, items, client)
    if hasattr(client, "map") and hasattr(client, "cancel"):
        return _dask(function, items, client)
    raise TypeError(
        f"client: expected a concurrent.futures.Executor, a dask.distributed.Client, or the module ray; got {client!r}"
    )


def _local(function: Callable[[In], Out], items: Sequence[In]) -> Iterator[tuple[int, Out]]:
    # Threads suffice: a run holds no lock of the interpreter.
    with futures.ThreadPoolExecutor(_cpus(), "heddle-sim") as pool:
        yield from _pool(function, items, pool)


def _cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pool(
    function: Callable[[In], Out], items: Sequence[In], pool: futures.Executor
) -> Iterator[tuple[int, Out]]:
    indices = {pool.submit(function, item): index for index, item in enumerate(items)}
    try:
        for future in futures.as_completed(indices):
            yield indices[future], future.result()
    finally:
        for future in indices:
            future.cancel()


def _dask(function: Callable[[In], Out], items: Sequence[In], client: Any) -> Iterator[tuple[int, Out]]:
    from distributed import as_completed

    # Not pure: equal scenarios are equal runs, but a trace file may have changed since.
    indices = {future: index for index, future in enumerate(client.map(function, items, pure=False))}
    try:
        for future in as_completed(indices):  # type: ignore[no-untyped-call]
            yield indices[future], future.result()
    finally:
        client.cancel(list(indices))


def _ray(function: Callable[[In], Out], items: Sequence[In], ray: Any) -> Iterator[tuple[int, Out]]:
    task = ray.remote(function)
    indices = {task.remote(item): index for index, item in enumerate(items)}
    left = list(indices)
    try:
        while left:
            (done,), left = ray.wait(left)
            yield indices[done], ray.get(done)
    finally:
        for reference in left:
            ray.cancel(reference)
