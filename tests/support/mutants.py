"""Mutation testing: small bugs put into the product one at a time, and the tests that must notice them.

    .venv/bin/python tests/support/mutants.py [--runs N] [--seed N] [--jobs N] [--only REGEXP] [FOLDER ...]

Draws `--runs` mutants by seed from the modules of the folders. Each one is tested in a copy of the project, first with
the tests of its module, then with those of its folder, then with all tests of its package, the recorded vectors and the
simulation; the first failure kills it. Prints every mutant with its difference, and a table per folder. Exit code 1:
less than 90 % were killed.

Survivors that are equivalent to the original, or that no test is meant to notice, stand in
tests/support/surviving_mutants.txt, one per line: file, original line, mutated line and reason, separated by " | ".
They count as killed. An entry that is no longer true has no effect.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("controllers", "scheduler", "informers", "kube/client", "tracing/recording")
LISTED = Path(__file__).with_name("surviving_mutants.txt")
SECONDS = 600  # of one run of pytest; a mutant that never ends is killed
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
OPERATORS: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Div: "*"}


class Mutant(NamedTuple):
    file: str  # relative to the project
    start: int  # offset in characters
    end: int
    text: str  # replaces source[start:end]

    def lines(self, source: str) -> tuple[str, str]:
        """Return the mutated statement's first changed line before and after, stripped."""
        mutated = source[: self.start] + self.text + source[self.end :]
        first = source.rfind("\n", 0, self.start) + 1
        before, after = (text[first:].partition("\n")[0].strip() for text in (source, mutated))
        return before, after


class Survivor(NamedTuple):
    mutant: Mutant
    before: str
    after: str


class _Finder(ast.NodeVisitor):
    """Collects the mutants of one module."""

    def __init__(self, file: str, source: str) -> None:
        self.mutants: list[Mutant] = []
        self._file, self._source = file, source
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column_bytes: int) -> int:
        start = self._line_starts[line - 1]
        line_text = self._source[start : self._line_starts[line]]
        return start + len(line_text.encode()[:column_bytes].decode())

    def _add(self, start: int, end: int, text: str) -> None:
        self.mutants.append(Mutant(self._file, start, end, text))

    def _replace(self, node: ast.AST, text: str) -> None:
        self._add(*self._span(node), text)

    def _between(self, left: ast.AST, right: ast.AST, pattern: str, text: str) -> None:
        """Replace the operator that stands between two expressions."""
        start, end = self._span(left)[1], self._span(right)[0]
        match = re.search(pattern, self._source[start:end])
        if match is not None:
            self._add(start + match.start(), start + match.end(), text)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare):  # a comparison is mutated itself
            start, end = self._span(test)
            self._add(start, end, f"not ({self._source[start:end]})")

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self._between(left, right, r"not\s+in|is\s+not|in|is|[<>=!]=|[<>]", COMPARISONS[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = "or" if isinstance(node.op, ast.And) else "and"
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, r"\b(and|or)\b", other)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in OPERATORS and not isinstance(node.left, ast.JoinedStr):
            self._between(node.left, node.right, r"//|[-+*/]", OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1))

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._replace(node.value, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or ast.unparse(node).startswith(("log.", "super()")):
            return  # docstrings; log records are no behaviour that tests should pin
        self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_Assert(self, node: ast.Assert) -> None:
        """Assertions state invariants; nothing in them is mutated."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """Annotations are not mutated."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        for statement in node.body:
            self.visit(statement)


def mutants_of(file: str, source: str) -> list[Mutant]:
    """Return all mutants of a module that still compile."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return [mutant for mutant in finder.mutants if _compiles(mutant, source)]


def _compiles(mutant: Mutant, source: str) -> bool:
    try:
        compile(source[: mutant.start] + mutant.text + source[mutant.end :], mutant.file, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def stages_of(file: str) -> Iterator[list[str]]:
    """Yield the arguments of pytest, nearest tests first, without folders that do not exist."""
    path = Path(file)
    mirrored = Path("tests/unit") / path.parent
    package = path.parts[0]
    seen: set[str] = set()
    for stage in (
        [mirrored / f"test_{path.stem}.py"],
        [mirrored],
        [Path("tests/unit") / package, Path("tests/oracle") / package, Path("tests/simulation")],
        [Path("tests/unit/kubeloop"), Path("tests/integration")],
    ):
        paths = [str(path) for path in stage if (ROOT / path).exists() and str(path) not in seen]
        seen.update(paths)
        if paths:
            yield paths


async def passes(copy: Path, tests: Sequence[str]) -> bool:
    """Return True if pytest passes in the copy of the project."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        *tests,
        cwd=copy,
        env={"KUBELOOP_ORACLE": str(ROOT.parent / "shared" / "oracle"), **os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(SECONDS):
            return await process.wait() in (0, 5)  # 5: no tests
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


class Unmutated:
    """Checks that tests pass without a mutant, once for each selection of tests."""

    def __init__(self) -> None:
        self._checked: set[tuple[str, ...]] = set()

    async def check(self, copy: Path, tests: Sequence[str]) -> None:
        """Exit if the tests fail in an unmodified copy: they would kill every mutant."""
        if tuple(tests) not in self._checked:
            if not await passes(copy, tests):
                sys.exit(f"error: without any mutant, these tests fail: {' '.join(tests)}")
            self._checked.add(tuple(tests))


async def survives(copy: Path, mutant: Mutant, source: str, unmutated: Unmutated) -> bool:
    """Return True if no test notices the mutant."""
    file = copy / mutant.file
    for tests in stages_of(mutant.file):
        await unmutated.check(copy, tests)
        file.write_text(source[: mutant.start] + mutant.text + source[mutant.end :])
        try:
            if not await passes(copy, tests):
                return False
        finally:
            file.write_text(source)
    return True


def listed_survivors() -> set[tuple[str, str, str]]:
    """Return file, original and mutated line of the survivors with a reason."""
    lines = LISTED.read_text().splitlines() if LISTED.exists() else []
    return {tuple(line.split(" | ")[:3]) for line in lines if line and not line.startswith("#")}  # type: ignore[misc]


async def run(mutants: Sequence[Mutant], sources: dict[str, str], jobs: int) -> list[Survivor]:
    listed, unmutated = listed_survivors(), Unmutated()
    waiting = list(enumerate(mutants, 1))
    survivors: list[Survivor] = []

    async def work(copy: Path) -> None:
        ignored = shutil.ignore_patterns(".venv", ".git", ".mypy_cache", ".ruff_cache", "__pycache__", ".hypothesis")
        shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
        while waiting:
            number, mutant = waiting.pop(0)
            before, after = mutant.lines(sources[mutant.file])
            began = time.monotonic()
            alive = await survives(copy, mutant, sources[mutant.file], unmutated)
            known = (mutant.file, before, after) in listed
            state = ("survived, listed" if known else "SURVIVED") if alive else "killed"
            seconds = time.monotonic() - began
            print(f"{number}: {state} in {seconds:.0f} s: {mutant.file}: {before} -> {after}", flush=True)
            if alive and not known:
                survivors.append(Survivor(mutant, before, after))

    with tempfile.TemporaryDirectory(prefix="kubeloop-mutants-") as folder:
        async with asyncio.TaskGroup() as group:
            for job in range(jobs):
                group.create_task(work(Path(folder) / str(job)))
    return survivors


def table(mutants: Sequence[Mutant], survivors: Sequence[Survivor], folders: Sequence[str]) -> str:
    def folder_of(mutant: Mutant) -> str:
        return next(folder for folder in folders if mutant.file.startswith(f"{folder}/"))

    all_by_folder = Counter(map(folder_of, mutants))
    alive_by_folder = Counter(folder_of(survivor.mutant) for survivor in survivors)
    lines = ["| folder | mutants | killed | % |", "|---|---|---|---|"]
    for name, count in [*all_by_folder.items(), ("all", len(mutants))]:
        alive = len(survivors) if name == "all" else alive_by_folder[name]
        lines.append(f"| {name} | {count} | {count - alive} | {100 * (count - alive) / count:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=FOLDERS, metavar="FOLDER")
    parser.add_argument("--runs", type=int, default=500, help="number of mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants that are tested at a time")
    parser.add_argument("--only", default="", metavar="REGEXP", help="only modules whose path it matches")
    options = parser.parse_args()
    files = sorted(
        str(path.relative_to(ROOT))
        for folder in options.folders
        for path in (ROOT / folder).rglob("*.py")
        if re.search(options.only, str(path.relative_to(ROOT)))
    )
    sources = {file: (ROOT / file).read_text() for file in files}
    mutants = [mutant for file in files for mutant in mutants_of(file, sources[file])]
    if not mutants:
        sys.exit(f"error: no module in {', '.join(options.folders)} matches {options.only!r}")
    sample = random.Random(options.seed).sample(mutants, min(options.runs, len(mutants)))
    print(f"{len(sample)} of {len(mutants)} mutants of {len(files)} modules, seed {options.seed}", flush=True)
    survivors = asyncio.run(run(sample, sources, options.jobs))
    print(f"\n{table(sample, survivors, options.folders)}")
    sys.exit(1 if len(survivors) > len(sample) // 10 else 0)


if __name__ == "__main__":
    main()
