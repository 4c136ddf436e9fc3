"""Mutation testing: small bugs put into the product one at a time, and the tests that must notice them.

    .venv/bin/python tests/support/development/mutants.py [--runs N] [--first N] [--seed N] [--jobs N] [--only RE]
        [--without-vectors] [--tests FOLDER] [FOLDER ...]

Draws `--runs` mutants by seed from the modules of the folders. The first run stores the lines that each test
executes, and its CPU time, in .mutants/; later runs repeat that for the files of tests that have changed, or that
execute a module that has changed. A mutant is tested with the tests that execute its statement: those of the module
first, then those of its folder, then the fastest, at most SECONDS of them. The first failure kills it if the same
tests pass without it, and so does a test that takes far longer than before. Mutants that no test executes survive.
`--without-vectors` leaves out the tests that need the recorded vectors, which are not in the repository; `--tests`,
which can be repeated, restricts the tests to those of a folder.

One process imports the product and collects all tests. Each mutant in a function runs its tests in a fork of it, where
the code of the function is replaced. What a module has computed with the function at import stays as it was. Mutants of
what is executed at import are tested last, in processes that import the mutated module.

Log records, docstrings, annotations, assertions (also `strict` of `zip`, and AssertionError and NotImplementedError
where they are raised), `__repr__`, decorators and options of classes are not mutated.

Prints every mutant with its difference, and a table per folder. Exit code 1: less than 90 % were killed.

Survivors that are equivalent to the original, or that no test is meant to notice, stand in
tests/support/development/surviving_mutants.txt, one per line: file, original line, mutated line and reason, separated
by " || ". They count as killed. An entry that is no longer true has no effect.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import importlib
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.machinery import SourceFileLoader
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple, TypeVar

import pytest

FORK = multiprocessing.get_context("fork")
ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("controllers", "scheduler", "informers", "kube/client", "tracing/recording")
LISTED = Path(__file__).with_name("surviving_mutants.txt")
MAPS = ROOT / ".mutants"
TESTS = [
    *(f"tests/unit/{package}" for package in ("controllers", "scheduler", "informers", "kube", "tracing", "kubeloop")),
    *("tests/oracle/controllers", "tests/oracle/scheduler", "tests/integration"),
]
VECTOR_TESTS = "tests/oracle/"
EXCLUDED_TESTS = ["test_fault_suite_detection.py"]  # puts in defects itself
SECONDS = 30.0  # of tests per mutant, as measured without it
FIRST_SECONDS = 1.0  # of the first process of tests; each further one runs four times as many
IMPORT_SECONDS = 60.0  # of CPU until the first test
MAP_SECONDS = 600.0  # of CPU per file of tests, with coverage
CRASHED = 70  # exit code of a process with an error of this script
NEEDS_IMPORT = 71  # exit code of a process that cannot replace the code of a mutant
MEMORY_BYTES = 4 << 30
PREIMPORTED = (
    *("aiohttp", "cryptography.x509", "httptools", "jq", "jwt", "kubernetes_asyncio.config", "msgspec"),
    *("numpy", "opentelemetry.sdk.trace", "prometheus_client", "re2", "rich.console", "uvloop", "yaml"),
)
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
    executed: range | None = None  # lines of its statement, up to it; None: executed at import

    def apply(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]

    def lines(self, source: str) -> tuple[str, str]:
        """Return the mutated statement's first changed line before and after, stripped."""
        first = source.rfind("\n", 0, self.start) + 1
        before, after = (text[first:].partition("\n")[0].strip() for text in (source, self.apply(source)))
        return before, after


class Result(NamedTuple):
    mutant: Mutant
    before: str
    after: str
    survived: bool
    tests: int  # that were selected
    seconds: float
    needs_import: bool = False  # the code cannot be replaced after the import: not tested

    def state(self, listed: Container[tuple[str, str, str]]) -> str:
        if not self.survived:
            return "killed"
        return "survived, listed" if (self.mutant.file, self.before, self.after) in listed else "SURVIVED"


T = TypeVar("T")
R = TypeVar("R")
Task = tuple[Mutant, str, Sequence[dict[str, float]]]  # mutant, source of its module, batches of tests


class _Finder(ast.NodeVisitor):
    """Collects the mutants of one module."""

    def __init__(self, file: str, source: str) -> None:
        self.mutants: list[Mutant] = []
        self._file, self._source = file, source
        self._statement_line, self._function_depth = 1, 0
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
        last_line = self._source.count("\n", 0, end) + 1
        executed = range(self._statement_line, last_line + 1) if self._function_depth else None
        self.mutants.append(Mutant(self._file, start, end, text, executed))

    def visit(self, node: ast.AST) -> None:
        outer_line = self._statement_line
        if isinstance(node, ast.stmt):
            self._statement_line = node.lineno
        super().visit(node)
        self._statement_line = outer_line

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
        # None is mostly equivalent to False, and visit_Constant replaces both True and False
        if node.value is not None and not (
            isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool | None)
        ):
            self._replace(node.value, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or ast.unparse(node).startswith(("log.", "self._log.", "super()")):
            return  # docstrings; log records are no behaviour that tests should pin
        self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if not ast.unparse(node).startswith(("raise AssertionError", "raise NotImplementedError")):
            self._replace(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_Assert(self, node: ast.Assert) -> None:
        """Assertions state invariants; nothing in them is mutated."""

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of zip, which asserts equal lengths
            self.visit(node.value)

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
        if node.name == "__repr__":
            return
        self._function_depth += 1
        for statement in node.body:
            self.visit(statement)
        self._function_depth -= 1

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function_depth += 1
        self.visit(node.body)
        self._function_depth -= 1

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)


def mutants_of(file: str, source: str) -> list[Mutant]:
    """Return all mutants of a module, of which a few do not compile."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return finder.mutants


def compiles(mutant: Mutant, source: str) -> bool:
    try:
        compile(mutant.apply(source), mutant.file, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class MappedTest(NamedTuple):
    """A test, its time, and the lines of the product that it executes, as a bit set per file."""

    id: str
    seconds: float
    lines: dict[str, int]

    @property
    def file(self) -> str:
        return self.id.partition("::")[0]

    def executes(self, mutant: Mutant) -> bool:
        lines = self.lines.get(mutant.file, 0)
        return lines != 0 if mutant.executed is None else any(lines >> line & 1 for line in mutant.executed)


class _LineRecorder:
    """Plugin of pytest: records the lines of passed tests."""

    def __init__(self) -> None:
        import coverage

        self._coverage = coverage.Coverage(data_file=None, include=[f"{ROOT}/{folder}/*" for folder in FOLDERS])
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.start()
        self._coverage.switch_context(item.nodeid)
        began = cpu_seconds()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = cpu_seconds() - began
            self._coverage.stop()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def tests(self) -> list[MappedTest]:
        lines: defaultdict[str, dict[str, int]] = defaultdict(dict)
        data = self._coverage.get_data()
        for path in data.measured_files():
            file = str(Path(path).resolve().relative_to(ROOT))
            for line, tests in data.contexts_by_lineno(path).items():
                for test in tests:
                    lines[test][file] = lines[test].get(file, 0) | 1 << line
        return [
            MappedTest(test, seconds, lines[test])
            for test, seconds in self._seconds.items()
            if test not in self._failed
        ]


class _CollectedTests:
    """Plugin of pytest: runs `work` instead of the collected tests, which forks of this process run."""

    current: _CollectedTests  # of this process and its forks

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._items: dict[str, pytest.Item] = {}
        self._functions: defaultdict[str, list[FunctionType]] = defaultdict(list)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return False  # pytest prints the errors of the collection
        self._items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # get_objects() leaves out what is frozen after the collection
        for value in gc.get_objects():
            if isinstance(value, FunctionType):
                self._functions[value.__code__.co_filename].append(value)
        gc.collect()
        gc.freeze()  # so that forks share the memory
        type(self).current = self
        self._work()
        return True

    def of_file(self, file: str) -> list[pytest.Item]:
        return [item for test, item in self._items.items() if test.partition("::")[0] == file]

    def passes(self, tests: Mapping[str, float], mutated: tuple[str, str, str] | None = None) -> bool | None:
        """Return True if the tests pass in a fork, with a file, its source, and a mutant of it that replaces it.

        Returns None if the mutant takes effect by an import only.
        """

        def run() -> int:
            if mutated is not None and not self._replace(*mutated):
                return NEEDS_IMPORT
            items = [self._items[test] for test in tests if test in self._items]
            return run_tests(items, _SelectedTests(tests), exit_first=True)

        code = in_child(run)
        return None if code == NEEDS_IMPORT else code == pytest.ExitCode.OK

    def _replace(self, file: str, source: str, mutated_source: str) -> bool:
        path = str(ROOT / file)
        old, new = (compile(text, path, "exec", dont_inherit=True) for text in (source, mutated_source))
        replacements = changed_codes(old, new)
        functions = [
            function
            for name, functions in self._functions.items()
            if os.path.realpath(name) == path
            for function in functions
        ]
        if not functions:
            import_mutated(path, mutated_source)  # by the tests that need it
            return True
        replaced = [function for function in functions if function.__code__ in replacements]
        for function in replaced:
            try:
                function.__code__ = replacements[function.__code__]
            except ValueError:  # another number of free variables
                return False
        return bool(replaced)


def run_tests(items: Sequence[pytest.Item], plugin: object, *, exit_first: bool) -> int:
    """Run collected tests with a plugin of pytest in this process, which must end after it; return the exit code."""
    session = items[0].session
    session.config.pluginmanager.unregister(name="terminalreporter")
    session.config.pluginmanager.register(plugin)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed and exit_first:
            break
    return int(pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK)


def changed_codes(old: CodeType, new: CodeType) -> dict[CodeType, CodeType]:
    """Return the codes of functions that differ, old to new. The module's own code is not among them."""
    codes = [[code for code in parent.co_consts if isinstance(code, CodeType)] for parent in (old, new)]
    if len(codes[0]) != len(codes[1]):
        return {}
    changed: dict[CodeType, CodeType] = {}
    for before, after in zip(*codes, strict=True):
        if before != after:
            changed |= {before: after, **changed_codes(before, after)}
    return changed


class _SelectedTests:
    """Plugin of pytest: runs these tests in this order, and ends the process if one takes far longer than before."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        by_id = {item.nodeid: item for item in items}
        items[:] = [by_id[test] for test in self._seconds if test in by_id]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        end_process_after(5 + 10 * self._seconds[item.nodeid])
        return (yield)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def end_process_after(seconds: float) -> None:
    """Let signals end this process after a CPU time, or six times as much of real time."""
    for timer, number, limit in (
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, 6 * seconds),
    ):
        signal.signal(number, signal.SIG_DFL)
        signal.setitimer(timer, limit)


def in_child(work: Callable[[], int]) -> int:
    """Return the exit code of `work` in a forked process without output; negative if a signal ended it."""
    child = os.fork()
    if child == 0:
        code = CRASHED
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            code = work()
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # processes that its tests have left
    return os.waitstatus_to_exitcode(status)


def collected(files: Sequence[str], jobs: int, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
    """Yield the results of `function`, which is called in forks of a process that has collected the files' tests."""
    receiver, sender = FORK.Pipe(duplex=False)

    def work() -> None:
        with FORK.Pool(jobs) as pool:
            for result in pool.imap(function, tasks):
                sender.send(result)

    def collect() -> None:
        receiver.close()
        importlib.import_module("coverage")  # once, and not in each fork
        pytest.main(["-p", "no:cacheprovider", *files], plugins=[_CollectedTests(work)])

    process = FORK.Process(target=collect)
    process.start()
    sender.close()
    for _ in tasks:
        try:
            yield receiver.recv()
        except EOFError:
            sys.exit("error: the tests cannot be collected")
    process.join()


def mapped_tests(files: Sequence[str], jobs: int) -> list[MappedTest]:
    """Return the tests of the files with their lines, stored in MAPS for files that have not changed."""
    MAPS.mkdir(exist_ok=True)
    stale = [file for file in files if stored_tests(file) is None]
    if stale:
        for file, _ in zip(stale, collected(stale, jobs, record_lines, stale), strict=True):
            tests = stored_tests(file) or []
            print(f"{file}: {len(tests)} tests, {sum(test.seconds for test in tests):.1f} s", flush=True)
    return [test for file in files for test in stored_tests(file) or []]


def stored_tests(file: str) -> list[MappedTest] | None:
    """Return the tests of a file that pass, with their lines; None if they or what they execute has changed since."""
    stored = map_of(file)
    if not stored.exists():
        return None
    recorded = json.loads(stored.read_text())
    tests = [MappedTest(*test) for test in recorded["tests"]]
    return tests if recorded["digest"] == digest(file, tests) else None


def map_of(file: str) -> Path:
    return MAPS / f"{file.replace('/', '.')}.json"


def digest(file: str, tests: Iterable[MappedTest]) -> str:
    """Return the digest of a file of tests and of the modules that they execute."""
    modules = sorted({module for test in tests for module in test.lines})
    return hashlib.sha256(b"".join(map(source_digest, [file, *modules]))).hexdigest()


@cache
def source_digest(file: str) -> bytes:
    path = ROOT / file
    return hashlib.sha256(path.read_bytes() if path.exists() else b"").digest()


def record_lines(file: str) -> None:
    """Run the tests of a file and store their lines in MAPS."""

    def record() -> int:
        end_process_after(MAP_SECONDS)
        recorder = _LineRecorder()
        if items := _CollectedTests.current.of_file(file):
            run_tests(items, recorder, exit_first=False)
        tests = recorder.tests()
        map_of(file).write_text(json.dumps({"digest": digest(file, tests), "tests": tests}))
        return 0

    in_child(record)


def files_in(folder: str, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob(pattern))


def batches(mutant: Mutant, tests: Iterable[MappedTest]) -> Iterator[dict[str, float]]:
    """Yield tests for a mutant, with their times: of its module, of its folder, the fastest; SECONDS in all."""
    path = Path(mutant.file)
    folder = f"tests/unit/{path.parent}/"
    mirrored = f"{folder}test_{path.stem}.py"
    executing = sorted(
        (test for test in tests if test.executes(mutant)),
        key=lambda test: (test.file != mirrored, not test.file.startswith(folder), test.seconds, test.id),
    )
    batch: list[MappedTest] = []
    total, limit = 0.0, FIRST_SECONDS
    for test in executing:
        if total + test.seconds > SECONDS:
            continue  # of the folder, perhaps: faster tests follow
        if batch and total + test.seconds > limit:
            yield by_file(batch)
            batch, limit = [], limit * 4
        batch.append(test)
        total += test.seconds
    if batch:
        yield by_file(batch)


def by_file(tests: Iterable[MappedTest]) -> dict[str, float]:
    """Return the times of tests, those of one file together: their fixtures may be shared."""
    files: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for test in tests:
        files[test.file][test.id] = test.seconds
    return {test: seconds for file in files.values() for test, seconds in file.items()}


def import_mutated(path: str, source: str) -> None:
    """Let imports of this process compile `source` instead of the file."""
    get_code = SourceFileLoader.get_code

    def mutated_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        if os.path.realpath(filename := loader.get_filename(name)) != path:
            return get_code(loader, name)
        return compile(source, filename, "exec", dont_inherit=True)

    SourceFileLoader.get_code = mutated_code  # type: ignore[method-assign, assignment]


def passes(tests: dict[str, float], mutated_file: str = "", mutated_source: str = "") -> bool:
    """Return True if the tests pass in a new process that imports the mutated source instead of that file.

    Raises RuntimeError if they cannot be run without a mutant.
    """

    def run() -> int:
        if mutated_file:
            import_mutated(str(ROOT / mutated_file), mutated_source)
        end_process_after(IMPORT_SECONDS)
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files], plugins=[_SelectedTests(tests)]))

    code = in_child(run)
    if not mutated_source and code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR, CRASHED):
        raise RuntimeError(f"pytest ended with code {code}")
    return code == pytest.ExitCode.OK


def tested(task: Task) -> Result:
    """Test a mutant in processes that import it."""
    mutant, source, batches = task
    began = time.monotonic()
    survived = all(passes(tests, mutant.file, mutant.apply(source)) or not passes(tests) for tests in batches)
    return Result(mutant, *mutant.lines(source), survived, sum(map(len, batches)), time.monotonic() - began)


def tested_after_import(task: Task) -> Result:
    """Test a mutant in forks of the process that has collected the tests."""
    mutant, source, batches = task
    began, passes = time.monotonic(), _CollectedTests.current.passes
    survived, needs_import = True, False
    for tests in batches:
        passed = passes(tests, (mutant.file, source, mutant.apply(source)))
        needs_import = passed is None
        survived = passed is not False or not passes(tests)
        if needs_import or not survived:
            break
    seconds = time.monotonic() - began
    return Result(mutant, *mutant.lines(source), survived, sum(map(len, batches)), seconds, needs_import)


def listed_survivors() -> set[tuple[str, str, str]]:
    """Return file, original and mutated line of the survivors with a reason."""
    lines = LISTED.read_text().splitlines() if LISTED.exists() else []
    return {tuple(line.split(" || ")[:3]) for line in lines if line and not line.startswith("#")}  # type: ignore[misc]


def table(results: Sequence[Result], folders: Sequence[str]) -> str:
    """Return counts per folder, as a table in Markdown."""
    listed = listed_survivors()
    rows: dict[str, Counter[str]] = {folder: Counter() for folder in (*folders, "all")}
    for result in results:
        folder = next(folder for folder in folders if result.mutant.file.startswith(f"{folder}/"))
        for row in (rows[folder], rows["all"]):
            row[result.state(listed)] += 1
    lines = ["| folder | mutants | killed | survived, listed | survived | % |", "|---|---:|---:|---:|---:|---:|"]
    for name, row in rows.items():
        if count := row.total():
            killed, known, survived = (row[state] for state in ("killed", "survived, listed", "SURVIVED"))
            lines.append(
                f"| {name} | {count} | {killed} | {known} | {survived} | {100 * (count - survived) / count:.0f} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=FOLDERS, metavar="FOLDER")
    parser.add_argument("--runs", type=int, default=500, help="number of the last mutant that is tested")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="number of the first mutant that is tested")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants that are tested at a time")
    parser.add_argument("--only", default="", metavar="REGEXP", help="only modules whose path it matches")
    parser.add_argument("--tests", action="append", metavar="FOLDER", help="folder of tests to run instead of all")
    parser.add_argument("--without-vectors", action="store_true", help=f"leave out the tests in {VECTOR_TESTS}")
    options = parser.parse_args()
    for folder in options.folders:
        if not f"{folder}/".startswith(tuple(f"{recorded}/" for recorded in FOLDERS)):
            parser.error(f"{folder}: the executed lines are recorded in {', '.join(FOLDERS)} only")
    test_folders = options.tests or TESTS
    if options.without_vectors:
        test_folders = [folder for folder in test_folders if not f"{folder}/".startswith(VECTOR_TESTS)]
    product = [file for folder in options.folders for file in files_in(folder, "*.py")]
    sources = {file: (ROOT / file).read_text() for file in product if re.search(options.only, file)}
    mutants = [mutant for file, source in sources.items() for mutant in mutants_of(file, source)]
    if not mutants:
        sys.exit(f"error: no module in {', '.join(options.folders)} matches {options.only!r}")
    random.Random(options.seed).shuffle(mutants)
    compiling = (mutant for mutant in mutants if compiles(mutant, sources[mutant.file]))
    sample = dict(enumerate(islice(compiling, options.first - 1, options.runs), options.first))
    print(f"{len(sample)} of {len(mutants)} mutants of {len(sources)} modules, seed {options.seed}", flush=True)
    files = [
        file
        for folder in test_folders
        for file in files_in(folder, "test_*.py")
        if Path(file).name not in EXCLUDED_TESTS
    ]
    tests = mapped_tests(files, options.jobs)
    listed, results = listed_survivors(), []

    def add(number: int, result: Result) -> None:
        print(f"{number}: {result.state(listed)} in {result.seconds:.0f} s ({result.tests} tests):", end=" ")
        file = result.mutant.file
        line = sources[file].count("\n", 0, result.mutant.start) + 1
        print(f"{file}:{line}: {result.before} -> {result.after}", flush=True)
        results.append(result)

    tasks = {number: (mutant, sources[mutant.file], list(batches(mutant, tests))) for number, mutant in sample.items()}
    in_functions = {number: task for number, task in tasks.items() if task[0].executed is not None}
    tested_results = collected(files, options.jobs, tested_after_import, list(in_functions.values()))
    for number, result in zip(in_functions, tested_results, strict=True):
        if not result.needs_import:
            add(number, result)
            del tasks[number]
    for module in PREIMPORTED:
        importlib.import_module(module)
    with FORK.Pool(options.jobs) as pool:
        for number, result in zip(tasks, pool.imap(tested, tasks.values()), strict=True):
            add(number, result)
    print(f"\n{table(results, options.folders)}")
    survivors = sum(result.state(listed) == "SURVIVED" for result in results)
    sys.exit(1 if survivors > len(results) // 10 else 0)


if __name__ == "__main__":
    main()
