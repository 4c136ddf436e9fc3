"""Parameter objects of policies and bindings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kubeloop.devcluster.admission.policies.parameters import ConfigurationError, collect_params, param_resource
from kubeloop.devcluster.api.served_resources import BY_KIND, get_served_resource
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import CONFIG_MAPS, NODES

JSON = dict[str, Any]
CONFIG_MAP = get_served_resource(CONFIG_MAPS)


@pytest.fixture
def store() -> ObjectStore:
    store = ObjectStore(seconds=lambda: 0.0)
    for namespace, name, labels in (("default", "a", {}), ("default", "b", {"use": "yes"}), ("other", "c", {})):
        metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "labels": labels}
        store.create(CONFIG_MAPS, {"metadata": metadata})
    return store


def names(params: Sequence[JSON | None]) -> list[str]:
    return [param["metadata"]["name"] for param in params if param is not None]


def test_param_resource_is_that_of_the_param_kind():
    spec = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    assert param_resource(spec, lambda api_version, kind: BY_KIND.get((api_version, kind))) is CONFIG_MAP
    assert param_resource({}, lambda *_: None) is None


def test_unknown_param_kind_is_an_error():
    spec = {"paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"}}
    with pytest.raises(ConfigurationError, match=r"paramKind: 'example\.com/v1, Kind=Limit'"):
        param_resource(spec, lambda *_: None)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        pytest.param({"name": "a"}, ["a"], id="name in the namespace of the request"),
        pytest.param({"name": "c", "namespace": "other"}, ["c"], id="name in another namespace"),
        pytest.param({"selector": {}}, ["a", "b"], id="empty selector"),
        pytest.param({"selector": {"matchLabels": {"use": "yes"}}}, ["b"], id="selector"),
        pytest.param({"name": "gone", "parameterNotFoundAction": "Allow"}, [], id="missing and allowed"),
    ],
)
async def test_params_of_a_reference(store: ObjectStore, reference: JSON, expected: list[str]):
    assert names(await collect_params(CONFIG_MAP, reference, "default", store)) == expected


async def test_policy_without_params_runs_once(store: ObjectStore):
    assert await collect_params(None, {"name": "a"}, "default", store) == (None,)
    assert await collect_params(CONFIG_MAP, None, "default", store) == (None,)


@pytest.mark.parametrize(
    ("resource", "reference", "namespace", "error"),
    [
        pytest.param(
            CONFIG_MAPS, {"name": "gone", "parameterNotFoundAction": "Deny"}, "default", "no params found", id="missing"
        ),
        pytest.param(CONFIG_MAPS, {"name": "a"}, "", "cannot use namespaced paramRef", id="no namespace"),
        pytest.param(
            NODES, {"name": "a", "namespace": "default"}, "default", "must not be provided", id="cluster-scoped kind"
        ),
    ],
)
async def test_invalid_reference_is_an_error(
    store: ObjectStore, resource: Any, reference: JSON, namespace: str, error: str
):
    with pytest.raises(ConfigurationError, match=error):
        await collect_params(get_served_resource(resource), reference, namespace, store)
