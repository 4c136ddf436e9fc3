"""Accept header negotiation."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.serializer.negotiation import clauses, matches_accept, negotiate_media_type, without_conversion
from support.apiserver.api_requests import InProcessApi

YAML, PROTOBUF = "application/yaml", "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("accept", "order"),
    [
        ("application/json;q=0.1, application/yaml;q=0.9", [YAML, "application/json"]),
        ("*/*, application/yaml", [YAML, "*/*"]),
        ("application/*;q=0.5,application/yaml;q=0.1", [YAML, "application/*"]),
        ("application/json;q=x, application/yaml;q=0.1", [YAML, "application/json"]),
        ("*", ["*/*"]),
        ("garbage,a/b/c,,", []),
    ],
)
def test_clauses_are_in_goautoneg_order(accept: str, order: list[str]):
    assert [clause.media_type for clause in clauses(accept)] == order


def test_clause_parameters_exclude_the_quality():
    (clause,) = clauses("application/json; as=Table ;q=0.5;v=v1;g=meta.k8s.io;bare;a=b=c")
    assert clause.parameters == {"as": "Table", "v": "v1", "g": "meta.k8s.io"}
    assert (clause.quality, clause.conversion) == (0.5, ("meta.k8s.io", "v1", "Table"))


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("", "application/json"),
        ("application/*", "application/json"),
        ("text/html, */*;q=0.1", "application/json"),
        ("application/json;stream=watch", "application/json"),
        ("application/yaml;stream=watch", None),
        ("application/json;v=v1", None),
        ("text/html", None),
    ],
)
def test_negotiate_media_type_without_conversion(accept: str, media_type: str | None):
    negotiated = negotiate_media_type(accept, without_conversion)
    assert (negotiated[0] if negotiated else None) == media_type


@pytest.mark.parametrize(
    ("accept", "accepted"),
    [("", True), ("*/*;q=0", True), ("application/yaml;as=x", True), ("application/*", False), (",", False)],
)
def test_matches_accept_compares_media_types_only(accept: str, accepted: bool):
    assert matches_accept(accept) is accepted


TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}}),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
        ("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}),
        ("/api/v1/namespaces/default/serviceaccounts/robot/token", {"spec": {}}),
        ("/api/v1/namespaces/default/pods/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}}),
        ("/api/v1/namespaces/default/pods/p/eviction", {"metadata": {"name": "p"}}),
    ],
)
async def test_objects_that_are_not_stored_have_no_table(path: str, body: dict[str, object]):
    api, namespace = InProcessApi(), "/api/v1/namespaces/default"
    api.create(f"{namespace}/serviceaccounts", {"metadata": {"name": "robot"}})
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    api.create(f"{namespace}/pods", pod)
    status, content = api("POST", path, body, accept=TABLE)
    assert (status, content["reason"]) == (406, "NotAcceptable"), content
    assert api("POST", path, body, accept=f"{TABLE},application/json")[0] == 201
