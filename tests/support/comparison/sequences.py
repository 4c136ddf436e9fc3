"""Sequences of requests, one step per line, converted to the format of the recorded exchanges with kube-apiserver.

A line consists of a verb, a path, options and a JSON body. The path is relative to the sequence's namespace, in the
API group apps after `apps:`; or absolute. OPERATIONS, MERGE, STRATEGIC and APPLY are patches. Options: `as=table`,
`as=metadata` and `as=metadata-list` (the Accept header), `view=none` and `view=names` (the compared part of the
response), `rv:=a.path` (store a value for ${rv} in later lines). Other lines: WATCH id path, COLLECT id (with the
options of the format), SLEEP seconds, AFTERWARDS path (to delete). The names in ABBREVIATIONS stand for text.
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
FOLDER = Path(__file__).parents[1] / "sequences"
ABBREVIATIONS = {
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
    """Return the sequences of tests/support/sequences/<topic>.yaml in the format of the replay script."""
    for name, lines in yaml.safe_load((FOLDER / f"{topic}.yaml").read_text(encoding="utf-8")).items():
        cleanup = [line.split()[1] for line in lines if line.startswith("AFTERWARDS ")]
        steps = [step(line) for line in lines if not line.startswith("AFTERWARDS ")]
        yield {"topic": topic, "name": name, "steps": steps, "cleanup": cleanup}


def step(line: str) -> JSON:
    """Convert one line. Raises ValueError for an unknown option."""
    for short, text in ABBREVIATIONS.items():
        line = line.replace(short, text)
    verb, _, rest = line.partition(" ")
    if verb == "SLEEP":
        return {"op": "sleep", "seconds": float(rest)}
    if verb == "COLLECT":
        name, *options = rest.split()
        pairs = [option.partition("=") for option in options]
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
    parent = "/apis/apps/v1/namespaces/${ns}/" if path.startswith("apps:") else "/api/v1/namespaces/${ns}/"
    result["path"] = path if path.startswith("/") else parent + path.removeprefix("apps:")
    while rest and rest[0] not in '{["' and (option := rest.partition(" ")[0]) not in ("null", "1"):
        rest = rest.partition(" ")[2]
        key, sign, value = option.partition("=")
        if key.endswith(":"):
            result.setdefault("capture", {})[key[:-1]] = value
        elif key == "as":
            result["headers"] = {"Accept": f"application/json;as={_FORMS[value]};v=v1;g=meta.k8s.io"}
        elif key == "view":
            result["view"] = _VIEWS[value]
        else:
            raise ValueError(f"{option!r} is not an option of a step: {line}")
        assert sign, line
    if rest:
        result["body"] = json.loads(rest)
    return result


def replay_script() -> ModuleType | None:
    """Return the script that sends and compares sequences, from the folder of recorded vectors; None if missing."""
    configured = os.environ.get("KUBELOOP_ORACLE")
    folder = Path(configured) if configured else Path(__file__).resolve().parents[4] / "shared" / "oracle"
    path = folder / "apiserver" / "replay.py"
    spec = importlib.util.spec_from_file_location("replay", path)
    if not path.is_file() or spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
