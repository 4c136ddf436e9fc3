"""Asking a running kubeloop process: what `kubeloop trace` and `kubeloop explain` have in common."""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from kubeloop.kube.errors import UserError
from kubeloop.process.process_files import default_process

PODS = {"pod": "pod", "pods": "pod", "po": "pod"}
DEPLOYMENTS = {"deployment": "deployment", "deployments": "deployment", "deploy": "deployment"}
_ANSWER_SECONDS = 10.0


def parse_target(target: str, kinds: Mapping[str, str], *, verb: str) -> tuple[str, str]:
    """("pod", "web-1") out of "po/web-1". kinds: what users write, in lower case -> what we call it.

    Raises UserError, which names the forms that are understood.
    """
    written, slash, name = target.partition("/")
    kind = kinds.get(written.lower().removesuffix(".apps"))
    if not slash or not name or kind is None:
        forms = " or ".join(f"{each}/NAME" for each in dict.fromkeys(kinds.values()))
        raise UserError(f"cannot {verb} '{target}'", hint=f"say {forms}")
    return kind, name


def ask(path: str, query: Mapping[str, str], *, endpoint: str | None, hint: str) -> Any:
    """The JSON that a process' page answers; `endpoint`: its URL, by default that of the process_to_ask().

    Raises UserError: with `hint` if the process has no answer to this question and no hint of its own.
    """
    with _answer(path, query, endpoint, hint) as answer:
        return json.load(answer)


def ask_lines(path: str, query: Mapping[str, str], *, endpoint: str | None, hint: str) -> Iterator[Any]:
    """As ask(), for a page whose answer is long: a JSON value on each line, read as they come."""
    with _answer(path, query, endpoint, hint) as answer:
        for line in answer:
            yield json.loads(line)


@contextlib.contextmanager
def _answer(path: str, query: Mapping[str, str], endpoint: str | None, hint: str) -> Iterator[Any]:
    server = (endpoint or default_process().endpoint).rstrip("/")
    try:
        # the endpoint is on this machine: a proxy for the world outside does not concern it
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{server}{path}?{urllib.parse.urlencode(query)}", timeout=_ANSWER_SECONDS) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        try:
            refusal = json.load(error)
            problem, hint = refusal["error"], refusal.get("hint", hint)
        except (ValueError, KeyError, TypeError):
            problem = f"the endpoint responds {error.code}"
        raise UserError(problem, hint=hint) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        problem = getattr(error, "reason", None) or error  # an URLError wraps what happened
        problem = getattr(problem, "strerror", None) or problem
        raise UserError(f"{server} does not respond: {problem}", hint="is kubeloop running? see --endpoint") from None
