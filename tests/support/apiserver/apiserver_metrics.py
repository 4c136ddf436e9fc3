"""Samples and labels of the development API server's /metrics."""

from __future__ import annotations

import re

from support.apiserver.api_requests import InProcessApi


def samples(api: InProcessApi) -> dict[str, float]:
    text = api("GET", "/metrics")[1]
    assert re.fullmatch(r"(# (HELP|TYPE) .+\n|[a-z_]+(\{[^}]*\})? [0-9.e+-]+\n)+", text)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def labels(resource: str, verb: str, scope: str, subresource: str = "", **more: str) -> str:
    values = {
        "component": "apiserver", "dry_run": "", "group": "", "resource": resource, "scope": scope,
        "subresource": subresource, "verb": verb, "version": "v1", **more,
    }  # fmt: skip
    return "{" + ",".join(f'{name}="{text}"' for name, text in sorted(values.items())) + "}"
