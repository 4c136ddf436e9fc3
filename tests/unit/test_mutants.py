"""Mutants of the mutation test."""

from __future__ import annotations

from support.mutants import Mutant, Survivor, mutants_of, stages_of, table

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
    return None if count <= 0 else ["a"]
'''


def differences(source: str) -> list[tuple[str, str]]:
    return [mutant.lines(source) for mutant in mutants_of("pods.py", source)]


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
            (result, "return None"),
            (result, result.replace("<=", "<")),
            (result, result.replace("0", "1")),
        ]
    )


def test_tests_of_the_module_run_first():
    first, second, third, _ = stages_of("controllers/runtime/work_queue.py")
    assert first == ["tests/unit/controllers/runtime/test_work_queue.py"]
    assert second == ["tests/unit/controllers/runtime"]
    assert third == ["tests/unit/controllers", "tests/oracle/controllers", "tests/simulation"]


def test_table_counts_survivors_per_folder():
    mutants = [Mutant(file, 0, 1, "") for file in ("a/x.py", "a/y.py", "b/x.py")]
    lines = table(mutants, [Survivor(mutants[0], "", "")], ["a", "b"]).splitlines()
    assert lines[2:] == ["| a | 2 | 1 | 50 |", "| b | 1 | 1 | 100 |", "| all | 3 | 2 | 67 |"]
