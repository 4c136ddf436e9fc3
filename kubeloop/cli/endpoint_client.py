"""Client of a running kubeloop process' endpoint, for `kubeloop trace` and `kubeloop explain`."""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from kubeloop.kube.user_error import UserError
from kubeloop.process.process_files import default_process, describe_choice

_TIMEOUT_SECONDS = 10.0


def get_json(
    path: str,
    query: Mapping[str, str],
    *,
    endpoint: str | None,
    hint: str,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> Any:
    """Return the JSON of a process' page. endpoint: its URL, by default that of default_process().

    Raises UserError: with `hint` if the process has no response to this query and no hint of its own.
    """
    with _get(path, query, endpoint, hint, timeout_seconds) as response:
        return json.load(response)


def stream_json_lines(path: str, query: Mapping[str, str], *, endpoint: str | None, hint: str) -> Iterator[Any]:
    """Yield the JSON value of each line of a long response as it arrives. Raises as get_json()."""
    with _get(path, query, endpoint, hint, _TIMEOUT_SECONDS) as response:
        for line in response:
            yield json.loads(line)


def print_choice() -> None:
    """Print to stderr which process answers, if there are several and the user has not chosen one by --endpoint."""
    if choice := describe_choice():
        print(choice, file=sys.stderr)


@contextlib.contextmanager
def _get(path: str, query: Mapping[str, str], endpoint: str | None, hint: str, timeout_seconds: float) -> Iterator[Any]:
    server = (endpoint or default_process().endpoint).rstrip("/")
    try:
        # the endpoint is on this machine: ignore the proxy of the environment
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{server}{path}?{urllib.parse.urlencode(query)}", timeout=timeout_seconds) as response:
            yield response
    except urllib.error.HTTPError as error:
        try:
            body = json.load(error)
            problem, hint = body["error"], body.get("hint", hint)
        except (ValueError, KeyError, TypeError):
            problem = f"the endpoint responds {error.code}"
        raise UserError(problem, hint=hint) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        problem = getattr(error, "reason", None) or error  # an URLError wraps the actual error
        problem = getattr(problem, "strerror", None) or problem
        raise UserError(f"{server} does not respond: {problem}", hint="is kubeloop running? see --endpoint") from None
