"""End of a container that its command alone determines: `/bin/false`, `exit 3`, `sleep 5 && exit 1`. Pure functions.

Only commands whose end is certain have one: statements that exit, sleep, print or do nothing, joined by `;`, `&&`, `||`
or a new line. Variables, pipes, redirections and all other commands are unknown.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from kubeloop.kube.json_object import JSON

_SHELLS = frozenset(("sh", "ash", "bash", "dash"))
_SHELL_FLAGS = re.compile(r"-[elux]*c")
_MAX_TEXT = 4096  # characters; a longer text is unknown
_UNKNOWN_SIGNS = re.compile(r"[$`<>|&(){}*?\\]")
_OPERATOR = re.compile(r"&&|\|\||;|\n")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)")
_DIRECTORIES = re.compile(r"/(usr/)?(local/)?s?bin/")
_PAUSE_IMAGE = re.compile(r"(?:.*/)?pause(?::[^/]*)?(?:@.*)?")


class CommandEnd(NamedTuple):
    """End of a command. seconds: from its start; infinite if it does not end by itself."""

    seconds: float
    exit_code: int


_NEVER = CommandEnd(math.inf, 0)


def container_end(container: JSON) -> CommandEnd | None:
    """Return how the container's command and arguments end; None if this is unknown, or the image's command runs.

    Arguments alone are a command if they start with a path or a shell, as those of `kubectl run IMAGE -- sh -c TEXT`:
    the image has no entrypoint, or one that runs them. Kubernetes' pause image never ends.
    """
    command, arguments = container.get("command"), container.get("args") or ()
    if command or (arguments and (arguments[0].startswith("/") or arguments[0] in _SHELLS)):
        return command_end((*(command or ()), *arguments))
    return _NEVER if not arguments and _PAUSE_IMAGE.fullmatch(container.get("image") or "") else None


@lru_cache(maxsize=4096)
def command_end(command: Sequence[str]) -> CommandEnd | None:
    """Return how a command ends, None if this is unknown. command: a tuple of the program and its arguments."""
    if not command or sum(map(len, command)) > _MAX_TEXT:
        return None
    program = _DIRECTORIES.sub("", command[0])
    if program in _SHELLS:
        flags, text = (*command, "", "")[1:3]
        return _script_end(text, stops_at_failure="e" in flags) if _SHELL_FLAGS.fullmatch(flags) else None
    statement = None if program in ("exit", ":") else _statement_end(list(command))
    return None if statement is None else CommandEnd(*statement)


def _script_end(text: str, *, stops_at_failure: bool) -> CommandEnd | None:
    seconds, code = 0.0, 0
    for operator, words in _statements(text):
        if words is None:
            return None
        if (operator == "&&" and code) or (operator == "||" and not code):
            continue
        if words == ["set", "-e"]:
            stops_at_failure, code = True, 0
            continue
        if words == ["exit"]:
            return CommandEnd(seconds, code)
        end = _statement_end(words[1:] if words[0] == "exec" and len(words) > 1 else words)
        if end is None:
            return None
        seconds, code = seconds + end[0], end[1]
        if seconds == math.inf or words[0] in ("exit", "exec"):
            return CommandEnd(seconds, code)
        if code and stops_at_failure:
            return None if "||" in text or "&&" in text else CommandEnd(seconds, code)
    return CommandEnd(seconds, code)


def _statements(text: str) -> Iterator[tuple[str, list[str] | None]]:
    """Yield (operator before it, words) of each statement; None instead of words that only a shell understands."""
    operator, position = "", 0
    for match in (*_OPERATOR.finditer(text), None):
        part = text[position : match.start() if match else len(text)].strip()
        if part and not part.startswith("#"):
            yield operator, _words(part)
        if part or operator not in ("&&", "||"):  # these continue on the next line
            operator = match[0] if match else ""
        position = match.end() if match else len(text)


def _words(part: str) -> list[str] | None:
    if _UNKNOWN_SIGNS.search(part):
        return None
    try:
        return shlex.split(part, comments=True)
    except ValueError:  # an operator within quotes
        return None


def _statement_end(words: list[str]) -> tuple[float, int] | None:
    """Return (seconds, exit code) of a simple command, None if they are unknown."""
    program, arguments = _DIRECTORIES.sub("", words[0]), words[1:]
    match program:
        case "true" | ":" | "echo" | "printf":
            return 0.0, 0
        case "false":
            return 0.0, 1
        case "exit" if len(arguments) == 1:
            return (0.0, int(arguments[0]) % 256) if re.fullmatch("[0-9]{1,9}", arguments[0]) else None
        case "sleep" if arguments:
            durations = [_sleep_seconds(text) for text in arguments]
            known = [seconds for seconds in durations if seconds is not None]
            return (sum(known), 0) if len(known) == len(durations) else None
    return None


def _sleep_seconds(text: str) -> float | None:
    if text in ("inf", "infinity"):
        return math.inf
    match = _DURATION.fullmatch(text)
    return float(match[1]) * _SECONDS[match[2]] if match else None
