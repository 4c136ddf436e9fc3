"""Accept headers: which of the forms that there are a client wants most."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.serializer.negotiation import as_it_is, chosen, clauses, passes

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
def test_clauses_are_in_the_order_of_goautoneg(accept: str, order: list[str]):
    assert [each.media_type for each in clauses(accept)] == order


def test_parameters_are_kept_but_the_quality():
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
def test_what_there_is_is_chosen_as_it_is_or_not_at_all(accept: str, media_type: str | None):
    found = chosen(accept, as_it_is)
    assert (found[0] if found else None) == media_type


@pytest.mark.parametrize(
    ("accept", "answer"),
    [("", True), ("*/*;q=0", True), ("application/yaml;as=x", True), ("application/*", False), (",", False)],
)
def test_the_router_compares_media_types_alone(accept: str, answer: bool):
    assert passes(accept) is answer
