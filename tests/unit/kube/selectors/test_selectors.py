"""Label and field selectors: properties. Results of Kubernetes are in tests/oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.kube.objects.api_types import LabelSelector, LabelSelectorRequirement, convert
from kubeloop.kube.selectors.selectors import (
    EVERYTHING,
    NOTHING,
    SelectorError,
    parse_field_selector,
    parse_label_selector,
    selector_from,
    selector_from_map,
    selector_text,
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


def reference_matches(selector: LabelSelector, labels_: dict[str, str]) -> bool:
    for key, value in selector.match_labels.items():
        if labels_.get(key) != value:
            return False
    for requirement in selector.match_expressions:
        has, value = requirement.key in labels_, labels_.get(requirement.key)
        holds = {
            "In": has and value in requirement.values,
            "NotIn": not has or value not in requirement.values,
            "Exists": has,
            "DoesNotExist": not has,
        }[requirement.operator]
        if not holds:
            return False
    return True


@given(selector=label_selectors, labels_=labels)
def test_compiled_selector_equals_reference(selector, labels_):
    assert selector_from(selector).matches(labels_) == reference_matches(selector, labels_)


@given(selector=label_selectors)
def test_selector_round_trip(selector):
    compiled = selector_from(selector)
    assert str(parse_label_selector(str(compiled))) == str(compiled)
    assert parse_label_selector(str(compiled)) == compiled


def test_none_selects_nothing_and_empty_selects_everything():
    assert selector_from(None) is NOTHING
    assert not NOTHING.matches({})
    assert not NOTHING.empty
    assert selector_from(LabelSelector()) is EVERYTHING
    assert EVERYTHING.matches({})
    assert EVERYTHING.empty
    assert NOTHING != EVERYTHING
    assert selector_from_map({}) is EVERYTHING


def test_selector_from_map_is_not_validated():
    assert selector_from_map({"not a key": "not/a value"}).matches({"not a key": "not/a value"})


@pytest.mark.parametrize("text", ["a=b=c", "a in b", ",", "a,", "a notin (x", "-a", "a=b!", "(a)"])
def test_invalid_selector_is_error(text):
    with pytest.raises(SelectorError):
        parse_label_selector(text)


def test_field_selector_escapes_and_exact_values():
    selector = parse_field_selector(r"metadata.name=a\,b,spec.nodeName!=x")
    assert selector.matches({"metadata.name": "a,b"})
    assert not selector.matches({"metadata.name": "a,b", "spec.nodeName": "x"})
    assert selector.exact("metadata.name") == "a,b"
    assert selector.exact("spec.nodeName") is None
    assert str(selector) == r"metadata.name=a\,b,spec.nodeName!=x"


def test_selector_text_is_that_of_go():
    selector = convert(
        LabelSelector,
        {
            "matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}],
        },
    )
    assert selector_text(selector) == (
        "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{"
        "LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}"
    )
    assert selector_text(None) == "nil"
