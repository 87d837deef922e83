"""Other people's suites on an edited copy of tokio: fetches, edits, builds, runs, judges. For scripts/test-tokio and
scripts/test-async-suites."""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import typing

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
TOKIO = "1.54.1"
RESULT = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (?:.*\b)?(ok|FAILED|ignored)\b", re.MULTILINE)


def run(words, **options):
    return subprocess.run([str(word) for word in words], check=True, text=True, **options)


def skip(why):
    print(f"SKIPPED: {why}", file=sys.stderr)
    sys.exit(77)


def target_folder(name):
    folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target").resolve() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def build_environment(target, flags=""):
    """Of cargo, which builds in `target`, without debug information."""
    rustflags = f"{os.environ.get('RUSTFLAGS', '')} {flags}".strip()
    quick = {"CARGO_PROFILE_TEST_DEBUG": "0", "CARGO_PROFILE_DEV_DEBUG": "0"}
    return os.environ | quick | {"CARGO_TARGET_DIR": str(target), "RUSTFLAGS": rustflags}


def source(package, version, folder):
    """The package's folder in cargo's registry."""
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "src/lib.rs").touch()
    manifest = f'[package]\nname="fetch"\nversion="0.1.0"\n[dependencies]\n{package}="{version}"\n[workspace]\n'
    (folder / "Cargo.toml").write_text(manifest)
    words = ["cargo", "metadata", "--format-version=1", "--quiet"]
    try:
        listed = run(words, cwd=folder, stdout=subprocess.PIPE).stdout
    except subprocess.CalledProcessError:
        skip(f"cargo cannot fetch {package} {version}; its messages are above")
    packages = json.loads(listed)["packages"]
    return next(pathlib.Path(p["manifest_path"]).parent for p in packages if p["name"] == package)


def edit(version, original, copy):
    """Makes an edited copy of tokio, as `heddle cargo --tokio` does."""
    shutil.rmtree(copy, ignore_errors=True)
    words = ["cargo", "run", "--quiet", "-p", "heddle-probes", "--example", "tokio_patch", "--"]
    run([*words, original, version, copy], cwd=REPOSITORY, env=os.environ)
    # It may lie in this repository, and is no member of its workspace.
    with open(copy / "Cargo.toml", "a") as manifest:
        manifest.write("\n[workspace]\n")


def replace(file, text, by):
    """Replaces the one occurrence of `text` in the file."""
    before = file.read_text()
    assert before.count(text) == 1, f"{file}: {text!r} occurs {before.count(text)} times"
    file.write_text(before.replace(text, by))


def patch(copy, package="tokio"):
    return ["--config", f'patch.crates-io.{package}.path="{copy}"']


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of tests; `folder` is its package's."""

    name: str
    path: str
    kind: str
    folder: pathlib.Path


def build(folder, words, environment):
    """Builds tests: `words` select them. Returns the programs."""
    words = ["cargo", "test", "--no-run", *words, "--message-format=json-render-diagnostics"]
    words += shlex.split(os.environ.get("CARGO_FLAGS", ""))
    lines = run(words, cwd=folder, env=environment, stdout=subprocess.PIPE).stdout.splitlines()
    built = [message for message in map(json.loads, lines) if message.get("executable")]
    return sorted(
        (
            Program(
                message["target"]["name"],
                message["executable"],
                message["target"]["kind"][0],
                pathlib.Path(message["manifest_path"]).parent,
            )
            for message in built
        ),
        key=lambda program: (program.name, program.path),
    )


def outcome(words, folder, environment, limit):
    """How each test of a program ended, and under None that the program did not, and what it printed."""
    with subprocess.Popen(
        [str(word) for word in words],
        cwd=folder,
        env=environment | {"CARGO_MANIFEST_DIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        errors="replace",
        text=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
    results = dict(RESULT.findall(said))
    if "\ntest result: " not in said:
        results[None] = f"not ended ({process.returncode})"
    return results, said


def without_heddle():
    return {name: value for name, value in os.environ.items() if not name.startswith("HEDDLE_")}


class Runner:
    """Runs test programs on Heddle: with `hooked` as their environment, started by the words `under`."""

    def __init__(self, hooked, limit, under=()):
        self.hooked, self.limit, self.under = hooked, limit, list(under)

    def one(self, program, tests=(), skipped=(), stock=None):
        """Runs `tests`, or all; with the environment `stock`, not on Heddle."""
        under = self.under if stock is None else []
        words = [*under, program.path, *(["--exact", *tests] if tests else [])]
        words += ["--exact"] * bool(skipped) + [word for test in skipped for word in ("--skip", test)]
        return outcome(words, program.folder, self.hooked if stock is None else stock, self.limit)

    def passes(self, program, test, stock=None):
        return self.one(program, [test], stock=stock)[0].get(test) in ("ok", "ignored")

    def whole(self, program, skipped=()):
        """The results of a program's tests, each alone where the program does not end, and what it printed."""
        results, said = self.one(program, skipped=skipped)
        missing = [test for test in self.tests(program) if test not in results and test not in skipped]
        again = []
        if None in results:
            print(f"   {program.name}: {results.pop(None)}; each test alone", flush=True)
            again = [test for test, how in results.items() if how not in ("ok", "ignored")]
        elif "FAILED" in results.values():
            print(said, flush=True)
        # Of one that is missing in a program that ended, something was printed into the result.
        for test in again + missing:
            alone, printed = self.one(program, [test])
            results[test] = alone.get(test, alone.get(None, "FAILED"))
            if results[test] not in ("ok", "ignored"):
                print(printed, flush=True)
        return results, said

    @staticmethod
    def tests(program):
        listed = run([program.path, "--list"], stdout=subprocess.PIPE, cwd=program.folder).stdout
        return re.findall(r"^(\S+): test$", listed, re.MULTILINE)


def known(file, suite=None):
    """Tests that may fail, with the reason: {(program, test): reason}. With `suite` its lines, which begin with it."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    if suite:
        lines = [rest for first, rest in (line.split(None, 1) for line in lines) if first == suite]
    return {(program, test): reason for program, test, reason in (line.split(None, 2) for line in lines)}


@dataclasses.dataclass
class Tally:
    """What came of the tests. A test that fails is tried again by each of the witnesses, which say why it is not
    Heddle's fault if it fails there too: {reason: whether (program, test) passes}."""

    expected: dict
    witnesses: dict[str, typing.Callable]
    passed: int = 0
    ignored: int = 0
    failed: dict[str, list] = dataclasses.field(default_factory=dict)

    def hanging(self, program):
        """Those that are not run."""
        return [test for (name, test), why in self.expected.items() if name == program.name and why.startswith("Hangs")]

    def add(self, runner, program, results):
        for test, how in results.items() | {(test, "not run") for test in self.hanging(program)}:
            name = f"{program.name} {test}"
            if how == "ok":
                self.passed += 1
            elif how == "ignored":
                self.ignored += 1
            elif reason := self.expected.get((program.name, test)):
                self.note("failed as known", f"{name}: {reason}")
            elif reason := next((why for why, passes in self.witnesses.items() if not passes(program, test)), None):
                self.note(reason, name)
            elif runner.passes(program, test):
                self.note("passed only alone, the second time", name)
            else:
                self.note("FAILED", f"{name} {how}")

    def note(self, what, test):
        self.failed.setdefault(what, []).append(test)

    def total(self):
        return self.passed + sum(map(len, self.failed.values()))

    def report(self):
        """Prints those that failed. Returns the exit code."""
        for what, tests in sorted(self.failed.items(), key=lambda item: item[0] == "FAILED"):
            print(f"{what}: {len(tests)}\n  " + "\n  ".join(sorted(tests)))
        return 1 if "FAILED" in self.failed else 0
