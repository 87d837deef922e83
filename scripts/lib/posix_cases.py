"""Cases of other people's suites: runs each as it is, then those that pass under `heddle run`, and compares."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import typing

# What a suite prints for a case that cannot run here: mtr; Perl's Test::More.
SKIPPED = re.compile(r"\[ skipped \]|^1\.\.0 # skip", re.IGNORECASE | re.MULTILINE)
# What mtr prints for each variant of a case: the others may have been skipped.
PASSED = "[ pass ]"


@dataclasses.dataclass
class Case:
    """`command` returns the command line, given the words that put a program under Heddle and an empty folder."""
    name: str
    folder: pathlib.Path
    command: typing.Callable[[list, str], list]


def run(case, under, limit):
    """Returns the exit status, "hung" or "skipped", and the output."""
    with tempfile.TemporaryDirectory(prefix="posix-", ignore_cleanup_errors=True) as scratch:
        # To a file: what a case leaves behind would keep a pipe open.
        with open(f"{scratch}/output", "w+b") as file:
            process = subprocess.Popen(case.command(under, scratch), cwd=case.folder, stdin=subprocess.DEVNULL,
                                       stdout=file, stderr=file, start_new_session=True)
            try:
                status = process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = "hung"
            file.seek(0)
            output = file.read().decode(errors="replace").strip()
    skipped = status == 0 and SKIPPED.search(output) and PASSED not in output
    return "skipped" if skipped else status, output


def run_all(cases, under, jobs, limit):
    """Returns the results by name, and the names that failed at first: those are tried once more, alone."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = {case.name: pool.submit(run, case, under, limit) for case in cases}
        results = {name: future.result() for name, future in futures.items()}
    again = [case for case in cases if results[case.name][0] not in (0, "skipped")]
    for case in again:
        results[case.name] = run(case, under, limit)
    return results, [case.name for case in again]


def compare(cases, state, known, heddle, policy, jobs=4, limit=120):
    """Returns the exit status: 1 if a case fails that passes without Heddle and that the file `known` does not name.

    The folder `state` keeps what passed without Heddle, and the output of what failed under it."""
    cache = state / "plain.json"
    plain = json.loads(cache.read_text()) if cache.exists() else {}
    new, _ = run_all([case for case in cases if case.name not in plain], [], jobs, limit)
    plain.update({name: status for name, (status, _) in new.items()})
    cache.write_text(json.dumps(plain))

    passing = [case for case in cases if plain[case.name] == 0]
    results, again = run_all(passing, [heddle, "run", "--policy", policy, "--"], jobs, limit)
    failed = {name: result for name, result in results.items() if result[0] != 0}
    second = len(again) - len(failed.keys() & again)
    print(f"{policy}: {len(passing) - len(failed)} of the {len(passing)} that pass without Heddle"
          f" (of {len(cases)}), {second} of them at the second try")
    listed = {line.split()[0] for line in open(known) if line.strip() and not line.startswith("#")}
    for name, (status, output) in failed.items():
        log = state / "failed" / policy.partition(":")[0] / f"{name.replace('/', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(output + "\n")
        print(f"  {'known' if name in listed else 'NEW'}: {name} ({status}): {log}")
    return 1 if failed.keys() - listed else 0
