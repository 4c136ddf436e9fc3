"""Sequences of requests in the format of the recorded exchanges with kube-apiserver, written a step a line.

A line is a verb, a path below the sequence's own namespace (`apps:` before one of the group apps; or a whole one),
words and a body in JSON. OPERATIONS, MERGE, STRATEGIC and APPLY are patches. The words: `as=table`, `as=metadata` and
`as=metadata-list` (what is accepted), `view=none` and `view=names` (what of the answer is compared), `rv:=a.path`
(take a value for ${rv} in later lines). Further lines: WATCH id path, COLLECT id (with the words of the format),
SLEEP seconds, AFTERWARDS path (to delete). The names in SHORT stand for text.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs

import yaml

JSON = dict[str, Any]
FOLDER = Path(__file__).parent / "sequences"
SHORT = {
    "$TEMPLATE": '{"metadata":{"labels":{"app":"a"}},"spec":{$CONTAINERS}}',
    "$SELECTED": '"selector":{"matchLabels":{"app":"a"}}',
    "$CONTAINERS": '"containers":[{"name":"c","image":"nginx:1.25"}]',
    "$DEPLOYMENT": '"apiVersion":"apps/v1","kind":"Deployment"',
    "$REPLICASET": '"apiVersion":"apps/v1","kind":"ReplicaSet"',
    "$CONFIGMAP": '"apiVersion":"v1","kind":"ConfigMap"',
    "$POD": '"apiVersion":"v1","kind":"Pod"',
    "$SERVICE": '"apiVersion":"v1","kind":"Service"',
}
_PATCHES = {"OPERATIONS": "json", "MERGE": "merge", "STRATEGIC": "strategic", "APPLY": "apply"}
_FORMS = {"table": "Table", "metadata": "PartialObjectMetadata", "metadata-list": "PartialObjectMetadataList"}
_VIEWS: dict[str, JSON] = {
    "none": {"none": True},
    "names": {"within": {"items": {"keys": ["metadata"], "pick": {"metadata": ["name"]}}}},
}


def sequences(topic: str) -> Iterator[JSON]:
    """Those of tests/support/sequences/<topic>.yaml, as the replay script takes them."""
    for name, lines in yaml.safe_load((FOLDER / f"{topic}.yaml").read_text(encoding="utf-8")).items():
        cleanup = [line.split()[1] for line in lines if line.startswith("AFTERWARDS ")]
        steps = [step(line) for line in lines if not line.startswith("AFTERWARDS ")]
        yield {"topic": topic, "name": name, "steps": steps, "cleanup": cleanup}


def step(line: str) -> JSON:
    """One line. Raises ValueError for a word that is none."""
    for short, text in SHORT.items():
        line = line.replace(short, text)
    verb, _, rest = line.partition(" ")
    if verb == "SLEEP":
        return {"op": "sleep", "seconds": float(rest)}
    if verb == "COLLECT":
        name, *words = rest.split()
        pairs = [word.partition("=") for word in words]
        return {"op": "collect", "id": name, **{key: float(value) if value else True for key, _, value in pairs}}
    result: JSON = {"op": "watch"} if verb == "WATCH" else {"method": "PATCH" if verb in _PATCHES else verb}
    if verb == "WATCH":
        result["id"], _, rest = rest.partition(" ")
    if verb in _PATCHES:
        result["patch"] = _PATCHES[verb]
    path, _, rest = rest.partition(" ")
    path, _, query = path.partition("?")
    if query:
        result["query"] = parse_qs(query, keep_blank_values=True)
    below = "/apis/apps/v1/namespaces/${ns}/" if path.startswith("apps:") else "/api/v1/namespaces/${ns}/"
    result["path"] = path if path.startswith("/") else below + path.removeprefix("apps:")
    while rest and rest[0] not in '{["' and (word := rest.partition(" ")[0]) not in ("null", "1"):
        rest = rest.partition(" ")[2]
        key, sign, value = word.partition("=")
        if key.endswith(":"):
            result.setdefault("capture", {})[key[:-1]] = value
        elif key == "as":
            result["headers"] = {"Accept": f"application/json;as={_FORMS[value]};v=v1;g=meta.k8s.io"}
        elif key == "view":
            result["view"] = _VIEWS[value]
        else:
            raise ValueError(f"{word!r} is no word of a step: {line}")
        assert sign, line
    if rest:
        result["body"] = json.loads(rest)
    return result


def replay_script() -> ModuleType | None:
    """The script that sends such sequences and compares, from the oracle's folder; None if that is not here."""
    configured = os.environ.get("KUBELOOP_ORACLE")
    folder = Path(configured) if configured else Path(__file__).resolve().parents[3] / "shared" / "oracle"
    path = folder / "apiserver" / "replay.py"
    spec = importlib.util.spec_from_file_location("replay", path)
    if not path.is_file() or spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
