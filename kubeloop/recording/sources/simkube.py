"""Traces of SimKube (`*.sktrace`): msgpack with the objects that were applied and deleted, and the run times of pods.

Source: docs/ref/trace-files.md of acrlabs/simkube, versions 1 and 2.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from kubeloop.kube.json_object import JSON
from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.times import time_plus
from kubeloop.recording.sources.collected import CollectedRecording

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VERSIONS: Final = (1, 2)
_TOKEN_VOLUME: Final = "kube-api-access-"
_RUN_SECONDS: Final = "kubeloop.dev/run-seconds"


class _Event(msgspec.Struct):
    ts: float
    applied_objs: list[JSON] = []
    deleted_objs: list[JSON] = []


class _Trace(msgspec.Struct):
    events: list[_Event]
    version: int = 1
    pod_lifecycles: dict[tuple[str, str], dict[int, list[Any]]] = {}


def read_simkube_trace(path: Path) -> CollectedRecording:
    """Return a trace as a recording. Raises UserError if it is none, or of an unknown version."""
    try:
        trace = msgspec.msgpack.decode(path.read_bytes(), type=_Trace)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint="check the path") from None
    except msgspec.DecodeError as error:
        raise UserError(f"{path}: not a trace of SimKube: {error}", hint="skctl export writes traces") from None
    if trace.version not in _VERSIONS:
        raise UserError(f"{path}: version {trace.version} of SimKube's format", hint="versions 1 and 2 are read")
    start = min((event.ts for event in trace.events), default=0.0)
    recording = CollectedRecording(str(path), time_plus(_EPOCH, start))
    run_seconds = {owner: seconds for owner, pods in trace.pod_lifecycles.items() if (seconds := _run_seconds(pods))}
    for number, event in enumerate(trace.events, start=1):
        for kind, objects in (("applied_objs", event.applied_objs), ("deleted_objs", event.deleted_objs)):
            for index, obj in enumerate(objects, start=1):
                place = f"{path}, event {number}, {kind} {index}"
                if kind == "deleted_objs":
                    recording.delete(obj, place, seconds=event.ts - start)
                else:
                    owner = f"{obj.get('apiVersion')}.{obj.get('kind')}", _key(obj)
                    applied = _with_run_seconds(_without_token(obj), run_seconds.get(owner))
                    recording.put(applied, place, seconds=event.ts - start)
    return recording


def _key(obj: JSON) -> str:
    metadata = obj.get("metadata") or {}
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def _without_token(obj: JSON) -> JSON:
    """Return a pod without the volume with a token, which the API server adds: it would refuse it from a user."""
    spec = obj.get("spec") or {}
    if obj.get("kind") != "Pod" or not any(_is_token(volume) for volume in spec.get("volumes") or ()):
        return obj
    spec = {**spec, "volumes": [volume for volume in spec["volumes"] if not _is_token(volume)]}
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [
                {**container, "volumeMounts": [m for m in container.get("volumeMounts") or () if not _is_token(m)]}
                for container in spec[field]
            ]
    return {**obj, "spec": spec}


def _is_token(volume_or_mount: JSON) -> bool:
    return str(volume_or_mount.get("name", "")).startswith(_TOKEN_VOLUME)


def _run_seconds(pods: dict[int, list[Any]]) -> float:
    """Return the median run time of the pods of one owner that have ended, 0.0 if none has."""
    ended = [
        float(end) - float(begin)
        for lifecycles in pods.values()
        for lifecycle in lifecycles
        if isinstance(lifecycle, dict) and isinstance(lifecycle.get("Finished"), list)
        for begin, end in [lifecycle["Finished"]]
    ]
    return median(ended) if ended else 0.0


def _with_run_seconds(obj: JSON, seconds: float | None) -> JSON:
    """Return the object with the run time of its pods as an annotation of the pod, or of its template."""
    if seconds is None:
        return obj
    spec = obj.get("spec") or {}
    if obj.get("kind") == "Pod":
        return {**obj, "metadata": _annotated(obj.get("metadata") or {}, seconds)}
    if "jobTemplate" in spec:
        job_spec = spec["jobTemplate"].get("spec") or {}
        job_spec = {**job_spec, "template": _annotated_template(job_spec.get("template") or {}, seconds)}
        return {**obj, "spec": {**spec, "jobTemplate": {**spec["jobTemplate"], "spec": job_spec}}}
    if "template" in spec:
        return {**obj, "spec": {**spec, "template": _annotated_template(spec["template"], seconds)}}
    return obj


def _annotated_template(template: JSON, seconds: float) -> JSON:
    return {**template, "metadata": _annotated(template.get("metadata") or {}, seconds)}


def _annotated(metadata: JSON, seconds: float) -> JSON:
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), _RUN_SECONDS: f"{seconds:g}"}}
