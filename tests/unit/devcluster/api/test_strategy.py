"""The registry of strategies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeloop.devcluster import kinds
from kubeloop.devcluster.api import strategy as registry
from kubeloop.devcluster.api.served_resources import BY_PATH, SERVICE_CIDRS
from kubeloop.devcluster.api.strategy import NO_BEHAVIOUR, strategy_of, update_as_create
from kubeloop.devcluster.kinds.networking import service_cidr
from kubeloop.devcluster.kinds.rbac import role_binding
from kubeloop.devcluster.server.metrics_api import SERVED
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.objects.resources import POD_GROUPS, Resource

KINDS = Path(str(kinds.__file__)).parent


def resource(group: str, kind: str) -> Resource[dict[str, Any]]:
    return Resource(group, "v1", kind, f"{kind.lower()}s", True, dict)


@pytest.mark.parametrize(
    ("group", "kind", "strategy"),
    [
        ("networking.k8s.io", "ServiceCIDR", service_cidr.STRATEGY),
        ("rbac.authorization.k8s.io", "RoleBinding", role_binding.STRATEGY),
    ],
)
def test_strategy_is_in_the_module_named_after_the_kind(group: str, kind: str, strategy: registry.Strategy):
    assert strategy_of(resource(group, kind)) is strategy


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        pytest.param("", "Widget", id="no module"),
        pytest.param("widgets", "Widget", id="no folder"),
        pytest.param("apps.example.com", "Deployment", id="another group"),
    ],
)
def test_kind_without_a_module_has_no_behaviour(group: str, kind: str):
    assert strategy_of(resource(group, kind)) is NO_BEHAVIOUR


def test_module_that_cannot_be_imported_is_an_error(monkeypatch: pytest.MonkeyPatch):
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'missing'", name="missing")

    monkeypatch.setattr(registry, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="missing"):
        strategy_of(resource("", "Gadget"))


def test_every_strategy_belongs_to_a_served_kind():
    strategies = {strategy_of(served.resource) for served in (*BY_PATH.values(), *SERVED)} - {NO_BEHAVIOUR}
    modules = {module for module in KINDS.rglob("*.py") if "\nSTRATEGY = " in module.read_text()}
    assert len(strategies) == len(modules)


def test_update_like_a_create_validates_changes_beside_metadata():
    calls: list[dict[str, Any]] = []
    validate = update_as_create(lambda _errors, obj: calls.append(obj))
    validate([], {"metadata": {"labels": {"a": "b"}}, "spec": 1}, {"metadata": {}, "spec": 1})
    assert calls == []
    validate([], {"metadata": {}, "spec": 2}, {"metadata": {}, "spec": 1})
    assert calls == [{"metadata": {}, "spec": 2}]


def test_update_like_a_create_keeps_immutable_fields():
    errors = ErrorList()
    validate = update_as_create(lambda *_: None, "spec.name", ("spec.selector", "v1.LabelSelector"))
    old = {"spec": {"name": "a", "selector": {}, "size": 1}}
    validate(errors, {"spec": {"name": "b", "selector": {}, "size": 2}}, old)
    assert [(cause["field"], cause["message"]) for cause in errors] == [
        ("spec.name", 'Invalid value: "b": field is immutable'),
    ]


def test_update_like_a_create_passes_the_stored_object():
    calls: list[tuple[Any, ...]] = []
    validate = update_as_create(lambda *args: calls.append(args), with_stored=True, unchanged=True)
    validate([], {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}})
    assert calls == [([], {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}})]


def test_strategy_is_imported_once():
    assert strategy_of(POD_GROUPS) is strategy_of(POD_GROUPS)
    assert strategy_of(SERVICE_CIDRS) is service_cidr.STRATEGY
