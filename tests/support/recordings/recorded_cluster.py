"""Recordings of clusters in memory: a writer that follows the store of their API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.clock import Clock
from kubeloop.kube.objects.resources import Resource
from kubeloop.recording.resources import RECORDED
from kubeloop.recording.writer import Header, RecordingWriter


@contextmanager
def recording(store: ObjectStore, path: Path, clock: Clock) -> Iterator[None]:
    """Record the changes of a store for the length of the context."""
    writer = RecordingWriter.create(path, Header(), clock=clock)
    stops = []
    for resource in RECORDED:
        name = resource.group_resource
        writer.start_list(name)
        for obj in store.list(resource):
            writer.put(name, obj)
        writer.end_list(name)
        stops.append(store.subscribe(resource, _receiver(writer, resource)))
    try:
        yield
    finally:
        for stop in stops:
            stop()
        writer.close()


def _receiver(writer: RecordingWriter, resource: Resource[Any]) -> Callable[[Change], None]:
    def receive(change: Change) -> None:
        if change.type == "DELETED":
            writer.delete(resource.group_resource, change.now.object)
        else:
            writer.put(resource.group_resource, change.now.object)

    return receive
