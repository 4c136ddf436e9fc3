"""Selectors: laws that hold for all of them. The table of Kubernetes' own answers is in tests/oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.kube.node_selectors import NodeSelectorMatcher, RequiredNodeAffinity
from kubeloop.kube.objects.api_types import (
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Taint,
    Toleration,
)
from kubeloop.kube.objects.taints_and_tolerations import find_untolerated_taint
from kubeloop.kube.selectors import (
    EVERYTHING,
    NOTHING,
    SelectorError,
    parse_field_selector,
    parse_label_selector,
    selector_from,
    selector_from_map,
)

keys = st.sampled_from(["app", "tier", "example.com/x", "in", "notin"])
values = st.sampled_from(["", "web", "db", "a.b", "1"])
labels = st.dictionaries(keys, values, max_size=4)


@st.composite
def expressions(draw):
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]))
    count = (1, 3) if operator.endswith("In") else (0, 0)
    some = draw(st.lists(values, min_size=count[0], max_size=count[1], unique=True))
    return LabelSelectorRequirement(key=draw(keys), operator=operator, values=tuple(some))


label_selectors = st.builds(
    lambda match_labels, match_expressions: LabelSelector(
        match_labels=match_labels, match_expressions=tuple(match_expressions)
    ),
    st.dictionaries(keys, values, max_size=2),
    st.lists(expressions(), max_size=3),
)


def plainly_matches(selector: LabelSelector, of: dict[str, str]) -> bool:
    for key, value in selector.match_labels.items():
        if of.get(key) != value:
            return False
    for each in selector.match_expressions:
        has, value = each.key in of, of.get(each.key)
        holds = {
            "In": has and value in each.values,
            "NotIn": not has or value not in each.values,
            "Exists": has,
            "DoesNotExist": not has,
        }[each.operator]
        if not holds:
            return False
    return True


@given(selector=label_selectors, of=labels)
def test_a_compiled_selector_agrees_with_the_plain_rule(selector, of):
    assert selector_from(selector).matches(of) == plainly_matches(selector, of)


@given(selector=label_selectors)
def test_a_selector_can_be_read_from_what_it_prints(selector):
    compiled = selector_from(selector)
    assert str(parse_label_selector(str(compiled))) == str(compiled)
    assert parse_label_selector(str(compiled)) == compiled


def test_no_selector_selects_nothing_and_an_empty_one_everything():
    assert selector_from(None) is NOTHING
    assert not NOTHING.matches({})
    assert not NOTHING.empty
    assert selector_from(LabelSelector()) is EVERYTHING
    assert EVERYTHING.matches({})
    assert EVERYTHING.empty
    assert NOTHING != EVERYTHING
    assert selector_from_map({}) is EVERYTHING


def test_a_selector_from_a_map_is_not_checked():
    assert selector_from_map({"not a key": "not/a value"}).matches({"not a key": "not/a value"})


@pytest.mark.parametrize("text", ["a=b=c", "a in b", ",", "a,", "a notin (x", "-a", "a=b!", "(a)"])
def test_what_is_no_selector_is_an_error(text):
    with pytest.raises(SelectorError):
        parse_label_selector(text)


def test_field_selectors_escape_and_say_what_they_pin():
    selector = parse_field_selector(r"metadata.name=a\,b,spec.nodeName!=x")
    assert selector.matches({"metadata.name": "a,b"})
    assert not selector.matches({"metadata.name": "a,b", "spec.nodeName": "x"})
    assert selector.exact("metadata.name") == "a,b"
    assert selector.exact("spec.nodeName") is None
    assert str(selector) == r"metadata.name=a\,b,spec.nodeName!=x"


def term(key: str, operator: str, *some: str, fields: bool = False) -> NodeSelectorTerm:
    requirement = (NodeSelectorRequirement(key=key, operator=operator, values=some),)
    return NodeSelectorTerm(match_fields=requirement) if fields else NodeSelectorTerm(match_expressions=requirement)


def test_terms_are_alternatives_and_a_bad_one_counts_only_if_no_other_matches():
    good, bad = term("cpu", "Gt", "4"), term("cpu", "Gt", "four")
    matcher = NodeSelectorMatcher(NodeSelector(node_selector_terms=(bad, good)))
    assert matcher.matches_or_raises("n", {"cpu": "8"})
    with pytest.raises(SelectorError, match="must be an integer"):
        matcher.matches_or_raises("n", {"cpu": "2"})
    with pytest.raises(SelectorError):
        matcher.check()


def test_a_node_is_selected_by_name():
    matcher = NodeSelectorMatcher(
        NodeSelector(node_selector_terms=(term("metadata.name", "In", "node-1", fields=True),))
    )
    assert matcher.matches("node-1", {})
    assert not matcher.matches("node-2", {})


def test_a_pod_that_asks_for_nothing_may_be_anywhere():
    anywhere = RequiredNodeAffinity({}, None)
    assert anywhere.empty
    assert anywhere.matches("n", {})
    assert not RequiredNodeAffinity({"disk": "ssd"}, None).matches("n", {})


def test_only_taints_of_the_effects_asked_for_keep_a_pod_away():
    soft = Taint(key="a", effect="PreferNoSchedule")
    hard = Taint(key="b", value="x", effect="NoExecute")
    assert find_untolerated_taint((soft, hard), ()) is hard
    assert find_untolerated_taint((soft, hard), (Toleration(key="b", value="x"),)) is None
    assert find_untolerated_taint((soft, hard), (), {"PreferNoSchedule"}) is soft
