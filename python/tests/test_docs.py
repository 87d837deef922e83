"""What the documentation shows, run as it stands."""

import ast
import doctest
import inspect
import pathlib
import re
import runpy

import pytest

import heddle_sim
from heddle_sim import _native

PYTHON = pathlib.Path(__file__).parents[1]
PAGES = [PYTHON / "README.md", PYTHON.parent / "docs" / "simulator" / "python.md"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder of its own, and no window."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("example", list((PYTHON / "examples").glob("*.py")), ids=lambda example: example.name)
def test_an_example_runs_and_draws(example, tmp_path):
    names = runpy.run_path(str(example))
    assert names["table"].notna().all(axis=None)
    assert names["kept"]["fifo"] < names["kept"]["shinjuku:quantum=10us"]
    assert (tmp_path / f"{example.stem}.png").read_bytes().startswith(b"\x89PNG")


def test_the_examples_in_docstrings_hold():
    finder = doctest.DocTestFinder()
    for thing in (heddle_sim, heddle_sim.run):
        names = {name: getattr(heddle_sim, name) for name in heddle_sim.__all__}
        for test in finder.find(thing, globs={**names, "heddle_sim": heddle_sim}):
            assert doctest.DocTestRunner().run(test).failed == 0


def test_everything_public_is_documented():
    for name in set(heddle_sim.__all__) - {"__version__"}:
        thing = getattr(heddle_sim, name)
        assert inspect.getdoc(thing), name
        if isinstance(thing, type):
            own = [member for member in vars(thing) if not member.startswith("_")]
            assert [member for member in own if not inspect.getdoc(getattr(thing, member))] == [], name


def test_the_stub_names_what_the_native_half_has():
    stub = ast.parse(pathlib.Path(_native.__file__).with_name("_native.pyi").read_text())
    for declared in stub.body:
        if isinstance(declared, ast.ClassDef) and declared.name != "ScenarioError":
            expected = {member.name for member in declared.body if not member.name.startswith("__")}
            has = {member for member in vars(getattr(_native, declared.name)) if not member.startswith("__")}
            assert has == expected, declared.name
    functions = {node.name for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert functions == {name for name in vars(_native) if not name.startswith("__")}
