"""Mutants of the mutation test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.development import mutants
from support.development.mutants import MappedTest, Mutant, Result, batches, compiles, mutants_of, table

SOURCE = '''
"""Docstring."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os


def pods(count: int = 3, *, ready: bool = True) -> list[str] | None:
    log.debug("counting %d", count)
    for number in range(count):
        if number not in ("ä", "b") and ready:
            continue
        raise ValueError(f"{number + 1}")
    queue.add("x")
    key = lambda pod: pod or (
        count
    )
    return None if count <= 0 else ["a"]


@dataclass(frozen=True)
class Queue:
    def __repr__(self) -> str:
        return f"{self.length + 1}"
'''


def differences(source: str) -> list[tuple[str, str]]:
    return [mutant.lines(source) for mutant in mutants_of("pods.py", source) if compiles(mutant, source)]


def test_every_operator_makes_one_small_change():
    signature = "def pods(count: int = 3, *, ready: bool = True) -> list[str] | None:"
    condition = 'if number not in ("ä", "b") and ready:'
    result = 'return None if count <= 0 else ["a"]'
    assert sorted(differences(SOURCE)) == sorted(
        [
            (signature, signature.replace("3", "4")),
            (signature, signature.replace("True", "False")),
            (condition, 'if not (number not in ("ä", "b") and ready):'),
            (condition, condition.replace("and", "or")),
            (condition, condition.replace("not in", "in")),
            ("continue", "break"),
            ('raise ValueError(f"{number + 1}")', "pass"),
            ('queue.add("x")', "pass"),
            ("key = lambda pod: pod or (", "key = lambda pod: pod and ("),
            (result, "return None"),
            (result, result.replace("<=", "<")),
            (result, result.replace("0", "1")),
        ]
    )


def test_result_that_is_a_condition_is_inverted_only():
    assert differences("def f():\n    return False\n") == [("return False", "return True")]
    assert differences("def f():\n    return 0\n") == [("return 0", "return None"), ("return 0", "return 1")]


def test_assertions_are_not_mutated():
    source = "def f(a, b):\n    return zip(a, b, strict=True)\n"
    assert differences(source) == [("return zip(a, b, strict=True)", "return None")]
    for statement in ("assert a > 1", "raise AssertionError('unreachable')", "raise NotImplementedError"):
        assert differences(f"def f(a):\n    {statement}\n") == []


def test_mutant_knows_the_lines_of_its_statement_unless_it_runs_at_import():
    source = "def f(x, limit=1):\n    return g(\n        x + 2,\n    )\n"
    executed = {mutant.apply(source)[mutant.start :][:1]: mutant.executed for mutant in mutants_of("pods.py", source)}
    assert executed == {"2": None, "N": range(2, 5), "-": range(2, 4), "3": range(2, 4)}


def mapped_test(test: str, seconds: float, line: int = 1, file: str = "controllers/x.py") -> MappedTest:
    return MappedTest(test, seconds, {file: 1 << line})


def test_order_of_tests_is_module_then_folder_then_fast_ones():
    mirrored = "tests/unit/controllers/test_x.py"
    neighbour = "tests/unit/controllers/test_y.py"
    tests = [
        mapped_test("tests/a.py::slow", 2.0),
        mapped_test("tests/a.py::fast", 0.25),
        mapped_test("tests/b.py::fast", 0.125),
        mapped_test("tests/a.py::fastest", 0.0625),
        mapped_test(f"{mirrored}::test", 0.5),
        mapped_test(f"{neighbour}::slow", 3.0),
        mapped_test(f"{neighbour}::too_slow", 29.0),
        mapped_test("tests/c.py::too_slow", 59.0),
        mapped_test(f"{mirrored}::other_line", 0.1, line=3),
        mapped_test(f"{mirrored}::other_module", 0.1, file="controllers/y.py"),
    ]
    assert [list(batch) for batch in batches(Mutant("controllers/x.py", 0, 1, "", range(1, 3)), tests)] == [
        [f"{mirrored}::test"],
        [f"{neighbour}::slow", "tests/a.py::fastest", "tests/a.py::fast", "tests/b.py::fast"],
        ["tests/a.py::slow"],
    ]


@pytest.mark.parametrize(
    ("changed", "is_stale"), [("test_x.py", True), ("executed.py", True), ("other.py", False), (None, False)]
)
def test_lines_are_recorded_again_after_a_change(changed, is_stale, tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "MAPS", tmp_path)
    for name in ("test_x.py", "executed.py", "other.py"):
        (tmp_path / name).write_text("1")
    mutants.source_digest.cache_clear()
    tests = [mapped_test("test_x.py::test", 1.0, file="executed.py")]
    mutants.map_of("test_x.py").write_text(json.dumps({"digest": mutants.digest("test_x.py", tests), "tests": tests}))
    if changed:
        (tmp_path / changed).write_text("2")
    mutants.source_digest.cache_clear()
    assert mutants.stored_tests("test_x.py") == (None if is_stale else tests)


def test_mutant_that_is_executed_at_import_is_tested_with_all_tests_of_its_module():
    tests = [mapped_test("tests/a.py::one", 0.1), mapped_test("tests/a.py::three", 0.2, line=3)]
    assert [list(batch) for batch in batches(Mutant("controllers/x.py", 0, 1, ""), tests)] == [
        ["tests/a.py::one", "tests/a.py::three"]
    ]


SCRIPT = """
import sys
from pathlib import Path
from support.development import mutants
mutants.ROOT, mutants.IMPORT_SECONDS = Path.cwd(), float(sys.argv[3])
print(mutants.passes({sys.argv[1]: 0.0}, "mutated_module.py", sys.argv[2]))
"""


@pytest.fixture
def passes(tmp_path):
    """Return a function that tests a mutant in a process without threads, since it forks; returns its output."""
    (tmp_path / "mutated_module.py").write_text("VALUE = 1")
    (tmp_path / "test_it.py").write_text("import mutated_module\ndef test_it(): assert mutated_module.VALUE == 1")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}

    def run(mutated: str, *, test: str = "test_it.py::test_it", limit_seconds: float = 60.0) -> str:
        command = [sys.executable, "-c", SCRIPT, test, mutated, str(limit_seconds)]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return (result.stdout or result.stderr).strip()

    return run


@pytest.mark.parametrize(("mutated", "expected"), [("VALUE = 2 - 1", "True"), ("VALUE = 2", "False")])
def test_mutant_is_killed_by_a_failed_test(passes, mutated, expected):
    assert passes(mutated) == expected


def test_mutant_is_killed_by_an_endless_loop(passes):
    assert passes("while True: pass", limit_seconds=1.5) == "False"


def test_tests_that_cannot_be_run_are_an_error(passes):
    assert passes("", test="missing.py::test").endswith("RuntimeError: pytest ended with code 4")


COLLECTED_SCRIPT = """
import sys
from pathlib import Path
from support.development import mutants
mutants.ROOT = Path.cwd()
source = Path("mutated_module.py").read_text()

def passes(mutated):
    return mutants._CollectedTests.current.passes({"test_it.py::test_it": 0.0}, ("mutated_module.py", source, mutated))

print(list(mutants.collected(["test_it.py"], 1, passes, [source, *sys.argv[1:]])))
"""
MODULE = """
def doubled(count):
    return (lambda: count * 2)()
LIMIT = doubled(2)
"""


def test_mutants_of_functions_are_tested_after_the_collection(tmp_path):
    (tmp_path / "mutated_module.py").write_text(MODULE)
    (tmp_path / "test_it.py").write_text(
        "from mutated_module import LIMIT, doubled\ndef test_it(): assert (doubled(LIMIT), LIMIT) == (8, 4)"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .")
    (tmp_path / "conftest.py").write_text("import gc\ndef pytest_collection_finish(): gc.freeze()")  # as tests/ does
    mutated = [
        MODULE.replace("count * 2", "count // 2"),  # killed
        MODULE.replace("count * 2", "2 * count"),  # survives
        MODULE.replace("LIMIT = doubled(2)", "LIMIT = doubled(3)"),  # takes effect at import only
        MODULE.replace("count * 2", "2"),  # without the free variable: only the outer function is replaced
    ]
    result = subprocess.run(
        [sys.executable, "-c", COLLECTED_SCRIPT, *mutated],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.splitlines()[-1] == "[None, False, True, None, False]", result.stderr


def test_table_counts_killed_and_listed_mutants_per_folder(tmp_path, monkeypatch):
    listed = tmp_path / "listed.txt"
    listed.write_text("# comment\na/y.py || x || y || reason\n")
    monkeypatch.setattr(mutants, "LISTED", listed)
    results = [
        Result(Mutant("a/x.py", 0, 1, ""), "x", "y", True, 1, 1.0),
        Result(Mutant("a/y.py", 0, 1, ""), "x", "y", True, 1, 1.0),
        Result(Mutant("b/x.py", 0, 1, ""), "x", "y", False, 1, 1.0),
    ]
    assert table(results, ["a", "b", "c"]).splitlines()[2:] == [
        "| a | 2 | 0 | 1 | 1 | 50 |",
        "| b | 1 | 1 | 0 | 0 | 100 |",
        "| all | 3 | 1 | 1 | 1 | 67 |",
    ]
