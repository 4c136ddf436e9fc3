"""Selectors of all kinds against Kubernetes' own: matching, printing, and the words of their errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.kube.node_selectors import NodeSelectorMatcher, PreferredNodeAffinity, RequiredNodeAffinity
from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.taints_and_tolerations import find_untolerated_taint, tolerates, toleration_errors
from kubeloop.kube.pod_affinity import AffinityTerm
from kubeloop.kube.selectors import (
    SelectorError,
    label_selector_errors,
    parse_field_selector,
    parse_label_selector,
    selector_from,
)

Record = dict[str, Any]
SELECTORS = "scheduler/selectors.jsonl.gz"


def check(records, name: str, kind: str, answer: Callable[[Record], Record]) -> None:
    """Compare what `answer` says with every record of a kind, field by field."""
    checked, wrong = 0, []
    for record in records(name):
        if record.get("type", kind) != kind:
            continue
        checked += 1
        got = answer(record)
        expected = {field: record.get(field) for field in got}
        if got != expected:
            wrong.append((record, got))
    if not checked:
        pytest.skip(f"no records of type {kind}")
    assert wrong == []


def label_selector(value: Any) -> api_types.LabelSelector | None:
    return None if value is None else convert(api_types.LabelSelector, value)


def test_label_selectors_match_print_and_fail_as_in_kubernetes(records):
    def answer(record: Record) -> Record:
        selector = label_selector(record["selector"])
        expected_errors = record.get("validationErrors")
        errors = [str(error) for error in label_selector_errors(selector, "spec.selector")]
        got: Record = {
            "validationErrors": expected_errors if Counter(errors) == Counter(expected_errors or ()) else errors
        }
        try:
            compiled = selector_from(selector)
        except SelectorError as error:
            unordered = "map iteration order" in record.get("error", "")
            return got | {"error": record["error"] if unordered else str(error)}
        got |= {"matches": compiled.matches(record["labels"]), "string": str(compiled), "empty": compiled.empty}
        return got | {"error": None}

    check(records, SELECTORS, "labelSelector", answer)


def test_label_selector_strings_parse_print_and_fail_as_in_kubernetes(records):
    def answer(record: Record) -> Record:
        try:
            selector = parse_label_selector(record["input"])
        except SelectorError as error:
            return {"error": str(error)}
        tests = [{"labels": t["labels"], "matches": selector.matches(t["labels"])} for t in record.get("tests", ())]
        return {"error": None, "string": str(selector), "empty": selector.empty, "tests": tests}

    check(records, SELECTORS, "labelSelectorString", answer)


def test_field_selector_strings_parse_print_and_fail_as_in_kubernetes(records):
    def answer(record: Record) -> Record:
        try:
            selector = parse_field_selector(record["input"])
        except SelectorError as error:
            return {"error": str(error)}
        tests = [{"fields": t["fields"], "matches": selector.matches(t["fields"])} for t in record.get("tests", ())]
        return {"error": None, "string": str(selector), "empty": selector.empty, "tests": tests}

    check(records, SELECTORS, "fieldSelectorString", answer)


def test_node_selectors_match_whole_and_lazily_as_in_kubernetes(records):
    def answer(record: Record) -> Record:
        matcher = NodeSelectorMatcher(convert(api_types.NodeSelector, record["nodeSelector"]))
        node = record["nodeName"], record["nodeLabels"] or {}
        got: Record = {"parseError": None, "lazyError": None, "lazyMatches": matcher.matches(*node)}
        try:
            matcher.check()
            got["matches"] = matcher.matches(*node)
        except SelectorError as error:
            got["parseError"] = str(error)
        try:
            matcher.matches_or_raises(*node)
        except SelectorError as error:
            got["lazyError"] = str(error)
        return got

    check(records, SELECTORS, "nodeSelector", answer)


def test_node_selector_and_required_affinity_of_a_pod_match_as_in_kubernetes(records):
    def answer(record: Record) -> Record:
        affinity = None if record["affinity"] is None else convert(api_types.Affinity, record["affinity"])
        required = RequiredNodeAffinity(record["nodeSelector"] or {}, affinity)
        node = record["nodeName"], record["nodeLabels"] or {}
        got: Record = {"matches": required.matches(*node), "error": None}
        try:
            required.matches_or_raises(*node)
        except SelectorError as error:
            got["error"] = str(error)
        return got

    check(records, SELECTORS, "requiredNodeAffinity", answer)


def test_preferred_scheduling_terms_score_as_in_kubernetes(records):
    def answer(record: Record) -> Record:
        try:
            preferred = PreferredNodeAffinity(
                convert(tuple[api_types.PreferredSchedulingTerm, ...], record["terms"] or [])
            )
        except SelectorError as error:
            return {"error": str(error)}
        return {"error": None, "score": preferred.score(record["nodeName"], record["nodeLabels"] or {})}

    check(records, SELECTORS, "preferredSchedulingTerms", answer)


def test_tolerations_tolerate_and_validate_as_in_kubernetes(records):
    def answer(record: Record) -> Record:
        toleration = convert(api_types.Toleration, record["toleration"])
        taint = convert(api_types.Taint, record["taint"])
        got: Record = {
            "tolerates": tolerates(toleration, taint),
            "toleratesWithComparisonOperators": tolerates(toleration, taint, comparison_operators=True),
        }
        for field, gate in (("validationErrors", False), ("validationErrorsWithComparisonOperators", True)):
            errors = toleration_errors((toleration,), "spec.tolerations", comparison_operators=gate)
            got[field] = [str(error) for error in errors] or None
        return got

    check(records, SELECTORS, "toleration", answer)


def test_the_first_untolerated_taint_is_that_of_kubernetes(records):
    def answer(record: Record) -> Record:
        taints = convert(tuple[api_types.Taint, ...], record["taints"] or [])
        tolerations = convert(tuple[api_types.Toleration, ...], record["tolerations"] or [])
        taint = find_untolerated_taint(taints, tolerations)
        return {
            "firstUntoleratedTaint": None if taint is None else api_types.to_json(taint),
            "untolerated": taint is not None,
        }

    check(records, SELECTORS, "untoleratedTaint", answer)


def test_pod_affinity_terms_select_the_pods_of_kubernetes(records):
    def answer(record: Record) -> Record:
        try:
            term = AffinityTerm(record["ownerNamespace"], convert(api_types.PodAffinityTerm, record["term"]))
        except SelectorError as error:
            return {"error": str(error)}
        return {
            "error": None,
            "effectiveNamespaces": sorted(term.namespaces),
            "matches": term.matches(record["podNamespace"], record["podLabels"] or {}, record["namespaceLabels"] or {}),
        }

    check(records, SELECTORS, "podAffinityTerm", answer)


def test_the_selectors_of_controllers_match_as_in_kubernetes(records):
    def answer(record: Record) -> Record:
        cases = record["out"]["cases"]
        try:
            selector = selector_from(label_selector(record["in"]["selector"]))
        except SelectorError:
            return {"out": {"valid": False, "empty": None, "cases": [case | {"matches": None} for case in cases]}}
        matches = [case | {"matches": selector.matches(case["labels"] or {})} for case in cases]
        return {"out": {"valid": True, "empty": selector.empty, "cases": matches}}

    check(records, "controllers/tables/selector_matches.jsonl.gz", "", answer)
