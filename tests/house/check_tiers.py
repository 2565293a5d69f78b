#!/usr/bin/env python3
"""Fails where a test is in no tier, or in two, and where tests are chosen by their names.

    check_tiers.py BUILD    the build directory: which unit tests there are

A file of pytest is called test_*.py, and is run by a part of tests/run.py, by a unit test, or by
`make test-packages`. Its `pytestmark` names one tier at most; without one its tests are in "test"
(tests/conftest.py). A file that is called otherwise has no tests: pytest would not find them.
"""
import ast
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from run import FOLDERS  # noqa: E402

BY_HAND = ["tests/packages"]
CHOOSING = ["Makefile", ".ci/run", "tests/run.py", "tests/coverage.py"]
BY_NAME = re.compile(r"""(^|[\s"'])(-k|--deselect|--ignore|--ignore-glob)(["'\s=]|$)""")


def tiers():
    source = ast.parse((ROOT / "tests/conftest.py").read_text())
    return next(ast.literal_eval(each.value) for each in source.body
                if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "TIERS")


def files(*patterns):
    return sorted(str(path.relative_to(ROOT)) for pattern in patterns
                  for path in (ROOT / "tests").rglob(pattern))


def run_by_parts():
    """The files of pytest that tests/run.py runs."""
    found = set(BY_HAND)
    for pattern, _ in FOLDERS.values():
        found |= {str(path.relative_to(ROOT)) for path in ROOT.glob(pattern)}
    return found


def unit_tests(tests, names):
    for test in tests:
        suites = [suite.partition(":")[2] for suite in test["suite"]]
        if sum(suite in names for suite in suites) != 1:
            yield f"unit test '{test['name']}' is in {suites}, not in one of {', '.join(names)}"


def marks_of_file(text):
    """Names of the marks that `pytestmark` gives to all tests of a file."""
    for each in ast.parse(text).body:
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "pytestmark":
            for node in ast.walk(each.value):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark":
                    yield node.attr


def hidden_tests(text):
    """Names of tests that pytest does not find, since it does not open their file."""
    return [each.name for each in ast.parse(text).body
            if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")]


def commands(tests):
    """The programs and files that unit tests run."""
    return {str(pathlib.Path(word).resolve()) for test in tests for word in test["cmd"]}


def other_files(tests):
    run = commands(tests)
    for name in files("*.py"):
        if not pathlib.Path(name).name.startswith("test_") and str(ROOT / name) not in run:
            for test in hidden_tests((ROOT / name).read_text()):
                yield f"{name}: {test} is in no test_*.py: nothing runs it"


def pytest_files(tests, names):
    run = run_by_parts()
    programs = commands(tests)
    for name in files("test_*.py"):
        path = ROOT / name
        places = {name, *map(str, pathlib.PurePath(name).parents)}
        if not run & places and str(path) not in programs:
            yield f"{name}: no part of tests/run.py runs it (FOLDERS)"
        marks = [mark for mark in marks_of_file(path.read_text()) if mark in names]
        if len(marks) > 1:
            yield f"{name}: its pytestmark names {len(marks)} tiers: {', '.join(marks)}"


def chosen_by_name():
    for name in [*CHOOSING, *files("meson.build")]:
        for at, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            if BY_NAME.search(line):
                yield f"{name}:{at}: chooses tests by their names; marks and suites are for that"


def planted():
    """What this must find."""
    names = ("check", "test", "long")
    two = "pytestmark = [pytest.mark.skipif(True), pytest.mark.check, pytest.mark.long]"
    assert sorted(marks_of_file(two)) == ["check", "long", "skipif"]
    assert list(marks_of_file("a, b = 1, 2\nx.y = 3\n")) == []
    assert len(list(unit_tests([{"name": "a", "suite": ["p:house"]}], names))) == 1
    assert len(list(unit_tests([{"name": "a", "suite": ["p:check", "p:long"]}], names))) == 1
    assert not list(unit_tests([{"name": "a", "suite": ["p:check", "p:house"]}], names))
    assert hidden_tests("def test_a(): pass\ndef b(): pass\n") == ["test_a"]
    assert BY_NAME.search("pytest -k 'a or b'") and BY_NAME.search("['-k', 'a']")
    assert not BY_NAME.search("rm -kf")


def main():
    planted()
    names = tiers()
    tests = json.loads((pathlib.Path(sys.argv[1]) / "meson-info/intro-tests.json").read_text())
    found = [*unit_tests(tests, names), *pytest_files(tests, names), *other_files(tests),
             *chosen_by_name()]
    print("\n".join(found))
    return 1 if found or len(tests) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
