"""Protobuf responses."""

from __future__ import annotations

from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.handlers.reading.list import Page
from kubeloop.devcluster.handlers.reading.protobuf_responses import MetadataFrames, ObjectFrames, ProtobufWriter
from kubeloop.devcluster.serializer.protobuf import codec
from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.objects.resources import CONFIG_MAPS
from support.apiserver.config_map_store import ConfigMapStore

WRITER = ProtobufWriter(get_served_resource(CONFIG_MAPS))
STATUS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410}


def test_body_of_an_object_and_of_a_list():
    config_maps = ConfigMapStore()
    config_maps.write("a")
    (stored,) = config_maps.table.list()
    assert codec.decode(WRITER.body(stored))["metadata"]["name"] == "a"
    assert WRITER.body_of(stored.object) == WRITER.body(stored)
    body = WRITER.list_body(Page([stored, stored], {"resourceVersion": "2"}))
    decoded = codec.decode(body)
    assert (decoded["kind"], decoded["metadata"]) == ("ConfigMapList", {"resourceVersion": "2"})
    assert [item["metadata"]["name"] for item in decoded["items"]] == ["a", "a"]


def test_version_of_an_object_is_encoded_once():
    config_maps = ConfigMapStore()
    config_maps.write("a")
    (stored,) = config_maps.table.list()
    assert WRITER.message(stored) is WRITER.message(stored)


def test_frames_have_the_type_and_the_object():
    config_maps = ConfigMapStore()
    changes: list[Change] = []
    config_maps.table.subscribe(changes.append)
    config_maps.write("a")
    (change,) = changes
    frames = ObjectFrames(WRITER)
    assert frames.change(change) == codec.encode_watch_event("ADDED", WRITER.body(change.now))
    assert frames.stored("DELETED", change.now) == codec.encode_watch_event("DELETED", WRITER.body(change.now))
    assert frames.failure(STATUS) == codec.encode_watch_event("ERROR", codec.encode(STATUS))


def test_metadata_frames_encode_the_view_of_an_object():
    config_maps = ConfigMapStore()
    config_maps.write("a")
    (stored,) = config_maps.table.list()
    view = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}}
    frames = MetadataFrames(lambda obj: {**view, "metadata": {"name": obj["metadata"]["name"]}})
    assert frames.stored("ADDED", stored) == codec.encode_watch_event("ADDED", codec.encode(view))
