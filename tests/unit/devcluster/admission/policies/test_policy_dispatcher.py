"""Dispatch of policies: match conditions, and the runs of a policy on a request."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.attributes import equivalent_resources
from kubeloop.devcluster.admission.policies.matcher import Matcher
from kubeloop.devcluster.admission.policies.policy_dispatcher import (
    Dispatcher,
    Invocation,
    MatchConditionError,
    MatchConditions,
    Misconfiguration,
)
from kubeloop.devcluster.admission.policies.validating_admission_policy import ValidatingPolicy
from kubeloop.devcluster.api.served_resources import BY_KIND
from kubeloop.devcluster.api.slow_work import LoopBudget
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import CONFIG_MAPS, NAMESPACES
from kubeloop.kube.policy_cel.environment import Environment
from support.apiserver.admission_attributes import create_attributes

JSON = dict[str, Any]
VALUES: JSON = {"object": {"a": 1}, "oldObject": None, "request": {}, "namespaceObject": None, "authorizer": None}
CONFIG_MAP_PARAMS: JSON = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}


def match_conditions(*expressions: str) -> MatchConditions:
    spec = {"matchConditions": [{"name": "c", "expression": expression} for expression in expressions]}
    return MatchConditions(spec, Environment(has_params=False))


@pytest.mark.parametrize(
    ("expressions", "met"),
    [
        pytest.param((), True, id="no conditions"),
        pytest.param(("object.a == 1", "true"), True, id="all true"),
        pytest.param(("object.a == 1", "false"), False, id="one false"),
        pytest.param(("object.b == 1", "false"), False, id="one fails and one is false"),
    ],
)
def test_match_conditions_are_met_if_all_are_true(expressions: tuple[str, ...], met: bool):
    assert match_conditions(*expressions).are_met(VALUES, LoopBudget()) is met


def test_failing_match_conditions_are_an_error():
    with pytest.raises(MatchConditionError, match=r"^\[.*no such key: b, .*no such key: c\]$"):
        match_conditions("object.b == 1", "object.c == 1", "true").are_met(VALUES, LoopBudget())


class Dispatch:
    """The runs of one policy on the creation of a ConfigMap."""

    def __init__(self, **spec: Any) -> None:
        self.store = ObjectStore(seconds=lambda: 0.0)
        rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps"]}
        constraints = {"objectSelector": {}, "namespaceSelector": {}, "resourceRules": [rule]}
        spec = {"matchConstraints": constraints, **spec}
        self.policy = ValidatingPolicy({"metadata": {"name": "p"}, "spec": spec})
        matcher = Matcher(self.store, equivalent_resources)
        self.dispatcher = Dispatcher(self.store, matcher, lambda api_version, kind: BY_KIND.get((api_version, kind)))

    async def invocations(self, *bindings: JSON) -> list[Invocation | Misconfiguration]:
        objects = [{"metadata": {"name": f"b{index}"}, "spec": spec} for index, spec in enumerate(bindings)]
        return await self.dispatcher.invocations(self.policy, objects, create_attributes())

    async def runs(self, *bindings: JSON) -> list[Invocation]:
        """Return the runs if nothing is misconfigured."""
        invocations = await self.invocations(*bindings)
        runs = [run for run in invocations if isinstance(run, Invocation)]
        assert len(runs) == len(invocations)
        return runs


async def test_policy_runs_once_per_matching_binding():
    dispatch = Dispatch()
    no_match = {"objectSelector": {"matchLabels": {"a": "b"}}, "namespaceSelector": {}}
    runs = await dispatch.runs({"validationActions": ["Warn"]}, {"matchResources": no_match}, {})
    assert [(run.binding, run.actions, run.params) for run in runs] == [("b0", ["Warn"], None), ("b2", (), None)]


async def test_policy_runs_once_per_parameter_object():
    dispatch = Dispatch(**CONFIG_MAP_PARAMS)
    for name in ("x", "y"):
        dispatch.store.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "default", "uid": name}})
    runs = await dispatch.runs({"paramRef": {"selector": {}}})
    assert [run.params["metadata"]["name"] for run in runs if run.params] == ["x", "y"]


async def test_missing_parameter_is_a_misconfiguration():
    dispatch = Dispatch(**CONFIG_MAP_PARAMS, failurePolicy="Fail")
    missing = {"paramRef": {"name": "gone", "parameterNotFoundAction": "Deny"}}
    (misconfiguration,) = await dispatch.invocations(missing)
    assert isinstance(misconfiguration, Misconfiguration)
    assert misconfiguration.binding == "b0"
    message = "failed to configure binding: no params found for policy binding"
    assert misconfiguration.message.startswith(message)


async def test_missing_parameter_is_ignored_with_failure_policy_ignore():
    dispatch = Dispatch(**CONFIG_MAP_PARAMS, failurePolicy="Ignore")
    assert await dispatch.invocations({"paramRef": {"name": "gone", "parameterNotFoundAction": "Deny"}}) == []


async def test_values_have_the_object_and_its_namespace():
    dispatch = Dispatch()
    dispatch.store.create(NAMESPACES, {"metadata": {"name": "default", "uid": "u"}})
    request = create_attributes()
    values = await dispatch.dispatcher.values(request, request.served)
    assert values["object"]["metadata"]["name"] == "a"
    assert (values["oldObject"], values["request"]["operation"]) == (None, "CREATE")
    assert values["namespaceObject"]["metadata"]["name"] == "default"
