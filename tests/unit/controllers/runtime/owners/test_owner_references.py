"""Controller references and the index of owned objects."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.runtime.owners.owner_references import (
    cached_controller,
    controller_index_key,
    index_by_controller,
    orphan_index_key,
)
from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Pod, ReplicaSet, convert
from kubeloop.kube.objects.object_fields import controller_reference

OWNER = convert(
    ReplicaSet,
    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs", "namespace": "ns", "uid": "u"}},
)


def pod(*references: dict[str, Any]) -> Pod:
    return convert(Pod, {"metadata": {"name": "p", "namespace": "ns", "ownerReferences": list(references)}})


def test_index_finds_pods_created_with_controller_reference():
    owned = pod(controller_reference(OWNER))
    assert [*index_by_controller(owned)] == [controller_index_key(OWNER)]
    recreated = pod({**controller_reference(OWNER), "uid": "new"})
    assert [*index_by_controller(recreated)] != [controller_index_key(OWNER)]


def test_index_has_orphans_under_their_namespace():
    orphan = pod({**controller_reference(OWNER), "controller": False})
    assert [*index_by_controller(orphan)] == [orphan_index_key("ns")]


@pytest.mark.parametrize(
    ("fields", "kind", "found"),
    [
        pytest.param({}, OWNER.kind, True, id="kind, name and UID match"),
        pytest.param({"uid": "new"}, OWNER.kind, False, id="another UID"),
        pytest.param({"name": "other"}, OWNER.kind, False, id="not in the store"),
        pytest.param({"controller": False}, OWNER.kind, False, id="not a controller"),
        pytest.param({}, "Job", False, id="another kind"),
    ],
)
def test_cached_controller(fields, kind, found):
    owners: Store[Any] = Store()
    owners.put(OWNER.key, OWNER)
    controlled = pod({**controller_reference(OWNER), **fields})
    assert cached_controller(owners, kind, controlled) is (OWNER if found else None)
