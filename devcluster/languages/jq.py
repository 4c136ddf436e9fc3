"""jq expressions about an object, evaluated by the jq package.

    Query(".status.phase")     an expression, checked
    Program(queries)           all expressions about a kind, compiled into one program

An expression that fails (a field of a number, iteration over null) has no results, as in KWOK. `env` and `$ENV` are
empty. Functions that read input, write or end the program are refused. Expressions that may not end (recursion, ranges,
regular expressions) run in a worker process, which a limit of its CPU time ends. Source: KWOK's
pkg/utils/expression/query.go.
"""

from __future__ import annotations

import atexit
import logging
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeAlias

import jq
import msgspec

log = logging.getLogger(__name__)

_LIMIT_SECONDS = 1.0  # of CPU time, for one evaluation in the worker
_LIMIT_BYTES = 1 << 30  # memory of the worker

# Name and number of parameters. KWOK's gojq has no input and output either; an object's evaluation must not end others.
_REFUSED = """
    debug/0 debug/1 get_search_list/0 halt/0 halt_error/0 halt_error/1 input/0 input_filename/0 input_line_number/0
    inputs/0 modulemeta/0 stderr/0
"""
_EXPENSIVE = """
    _assign/2 _modify/2 _multiply/2 capture/1 capture/2 combinations/0 combinations/1 gsub/2 gsub/3 match/1 match/2
    pick/1 range/1 range/2 range/3 recurse/1 recurse/2 repeat/1 scan/1 scan/2 setpath/2 split/2 splits/1 splits/2 sub/2
    sub/3 test/1 test/2 until/2 while/2
"""
_EXPENSIVE_KEYWORDS = re.compile(r"\b(def|foreach|reduce)\b")


class JqError(Exception):
    """An invalid or unsupported expression."""


@dataclass(frozen=True, slots=True)
class Query:
    """An expression. Raises JqError if it is invalid or unsupported."""

    text: str

    def __post_init__(self) -> None:
        _is_cheap(self.text)

    @property
    def is_cheap(self) -> bool:
        """True if every evaluation ends soon, for any object of usual size."""
        return _is_cheap(self.text)


Results: TypeAlias = Mapping[Query, Sequence[Any]]
"""Results of expressions for one object, without nulls."""


class Program:
    """The expressions about one kind of objects."""

    def __init__(self, queries: Iterable[Query]) -> None:
        self._ignored: list[Query] = []
        self._lock = threading.Lock()
        self._set(dict.fromkeys(queries))

    def _set(self, queries: Iterable[Query]) -> None:
        self._queries = tuple(queries)
        self._text = _program(self._queries)
        self._paths = [_path(query.text) for query in self._queries]
        self.is_cheap = all(query.is_cheap for query in self._queries)

    def results(self, obj: Any, now: datetime) -> Results:
        """Evaluate all expressions; if the program is not cheap, call this in a thread: it waits for the worker."""
        if not self._queries:
            return self._by_query(b"[]")
        value = msgspec.json.encode([_needed(obj, self._paths), now.timestamp()])
        if self.is_cheap:
            return self._by_query(_evaluate(self._text, value))
        with self._lock:
            try:
                return self._by_query(_worker.evaluate(self._text, value))
            except _WorkerEnded as ended:
                if not self._ignore_endless(value):
                    log.error("jq expressions of an object failed: %s", ended)
                    return self._by_query(b"null")
        return self.results(obj, now)

    def _by_query(self, output: bytes) -> dict[Query, list[Any]]:
        """Read the program's output: a list for each expression; null if all failed."""
        lists = msgspec.json.decode(output) or [[] for _ in self._queries]
        results = {
            query: [value for value in values if value is not None]
            for query, values in zip(self._queries, lists, strict=True)
        }
        return results | {query: [] for query in self._ignored}

    def _ignore_endless(self, value: bytes) -> bool:
        """Remove the expressions that end the worker; return False if none does alone."""
        before = len(self._ignored)
        for query in self._queries:
            try:
                if not query.is_cheap:
                    _worker.evaluate(_program([query]), value)
            except _WorkerEnded as ended:
                self._ignored.append(query)
                log.error("jq expression %r is ignored from now on: %s", query.text, ended)
        self._set(query for query in self._queries if query not in self._ignored)
        return len(self._ignored) > before


# --- needed parts of an object ----------------------------------------------------------------------------------------

_PATH = re.compile(
    r"""\s*\.([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?  # the fields to return
        (?:\.[A-Za-z_]\w*|\.?\[(?:\d+|"[^"\\]*")?\]|\?)*\s*(?:\|(?!=)|\Z)""",
    re.ASCII | re.VERBOSE,
)


def _path(text: str) -> tuple[str, ...]:
    """Return one or two fields outside of which the expression reads nothing; empty if it may read the whole object."""
    match = _PATH.match(text)
    return () if match is None else tuple(filter(None, match.groups()))


def _needed(obj: Any, paths: Sequence[tuple[str, ...]]) -> Any:
    """Return the parts of an object at these paths: jq needs 40 us to read a kilobyte."""
    parts: dict[str, Any] = {}
    for path in sorted(paths, key=len, reverse=True):
        if not path:
            return obj
        name, value = path[0], obj.get(path[0])
        if len(path) == 1 or not isinstance(value, dict):
            parts[name] = value
        elif path[1] in value:
            parts.setdefault(name, {})[path[1]] = value[path[1]]
    return parts


# --- compilation ------------------------------------------------------------------------------------------------------


def _definition(function: str, marker: str) -> str:
    """Redefine a function of jq: an expression that calls it does not compile, and the error names the marker."""
    name, _, count = function.partition("/")
    parameters = ";".join("abc"[: int(count)])
    return f"def {name}{f'({parameters})' if parameters else ''}: {marker}{name};"


_START = " ".join(
    [
        ".[1] as $now | .[0] | {} as $ENV | def env: {}; def now: $now;",
        *(_definition(function, "refused_") for function in _REFUSED.split()),
    ]
)
_START_CHEAP = " ".join([_START, *(_definition(function, "expensive_") for function in _EXPENSIVE.split())])
_COMPILE_ERROR = re.compile(r"jq: error: (.*?) at <top-level>, line (\d+)(?:, column (\d+))?", re.DOTALL)


@lru_cache(maxsize=1024)
def _is_cheap(text: str) -> bool:
    """Check an expression. Raises JqError if it is invalid or unsupported."""
    if not text.strip():
        raise JqError("the expression is empty")
    for start in (_START_CHEAP, _START):
        try:
            jq.compile(f"{start}\n{text}")
        except ValueError as error:
            if start is _START or "expensive_" not in str(error):
                raise _compile_error(str(error)) from None
        else:
            return start is _START_CHEAP and _EXPENSIVE_KEYWORDS.search(text) is None
    raise AssertionError("unreachable")


def _compile_error(message: str) -> JqError:
    refused = re.search(r"\brefused_(\w+)/0 is not defined", message)
    if refused is not None:
        return JqError(f"{refused[1]} is not supported")
    problem = _COMPILE_ERROR.search(message)
    if problem is None:
        return JqError(message.removeprefix("jq: error: ").partition("\n")[0])
    column = f", column {problem[3]}" if problem[3] else ""
    return JqError(f"{problem[1]} at line {int(problem[2]) - 1}{column}")


def _program(queries: Iterable[Query]) -> str:
    # two line ends: an expression may end with a comment, and that with a backslash
    lists = ",".join(f"(try [{query.text}\n\n] catch [])" for query in queries)
    return f"{_START} [{lists}] | tojson"


@lru_cache(maxsize=64)
def _compiled(program: str) -> Any:
    return jq.compile(program)


def _evaluate(program: str, value: bytes) -> bytes:
    """Return the output for one input; "null" without any."""
    try:
        output: str = _compiled(program).input_text(value.decode()).first()
    except (ValueError, StopIteration):
        return b"null"
    return output.encode()


# --- the worker process -----------------------------------------------------------------------------------------------


class _WorkerEnded(Exception):
    """The worker has ended; the text is the reason."""


class _Worker:
    """A process that evaluates programs, one at a time. It starts when it is needed and ends with its stdin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def evaluate(self, program: str, value: bytes) -> bytes:
        """Return the program's output. Blocks; raises _WorkerEnded."""
        with self._lock:
            process = self._process = self._process or self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            output = b""
            with suppress(BrokenPipeError):
                process.stdin.write(msgspec.json.encode([program, msgspec.Raw(value)]) + b"\n")
                process.stdin.flush()
                output = process.stdout.readline()
            if not output.endswith(b"\n"):
                self._process = None
                process.communicate()
                if process.returncode == -signal.SIGVTALRM:
                    raise _WorkerEnded(f"its evaluation takes more than {_LIMIT_SECONDS:g} s")
                raise _WorkerEnded(f"its evaluation ended the process with status {process.returncode}")
            return output

    def _started(self) -> subprocess.Popen[bytes]:
        atexit.unregister(self._end)
        atexit.register(self._end)
        return subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


_worker = _Worker()


def _serve() -> None:
    """Evaluate programs from stdin until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError):  # not possible on macOS
        resource.setrlimit(resource.RLIMIT_AS, (_LIMIT_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    for line in sys.stdin.buffer:
        program, value = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
        signal.setitimer(signal.ITIMER_VIRTUAL, _LIMIT_SECONDS)  # its signal ends the process
        output = _evaluate(program, bytes(value))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        sys.stdout.buffer.write(output + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
