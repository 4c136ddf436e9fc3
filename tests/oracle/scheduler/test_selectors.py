"""Selectors, tolerations and affinity terms compared with Kubernetes: matching, printing and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_label_selector
from kubeloop.devcluster.validation.pod.scheduling import validate_tolerations
from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.taints_and_tolerations import find_untolerated_taint, tolerates
from kubeloop.kube.selectors.node_selectors import NodeSelectorMatcher, PreferredNodeAffinity, RequiredNodeAffinity
from kubeloop.kube.selectors.pod_affinity import AffinityTerm
from kubeloop.kube.selectors.selectors import (
    SelectorError,
    parse_field_selector,
    parse_label_selector,
    selector_from,
)

Record = dict[str, Any]
SELECTORS = "scheduler/selectors.jsonl.gz"


def check(records, name: str, kind: str, evaluate: Callable[[Record], Record]) -> None:
    """Compare the result of `evaluate` with every record of a type, field by field."""
    count, mismatches = 0, []
    for record in records(name):
        if record.get("type", kind) != kind:
            continue
        count += 1
        actual = evaluate(record)
        expected = {field: record.get(field) for field in actual}
        if actual != expected:
            mismatches.append((record, actual))
    assert count, f"no records of type {kind}"
    assert mismatches == []


def validation_errors(validate: Callable[[ErrorList, str, Any], None], path: str, value: Any) -> list[str]:
    errors = ErrorList()
    validate(errors, path, value)
    return [f"{error['field']}: {error['message']}" for error in errors]


def label_selector(value: Any) -> api_types.LabelSelector | None:
    return None if value is None else convert(api_types.LabelSelector, value)


def test_label_selectors_match_kubernetes(records):
    def evaluate(record: Record) -> Record:
        selector = label_selector(record["selector"])
        expected_errors = record.get("validationErrors")
        errors = validation_errors(validate_label_selector, "spec.selector", record["selector"])
        actual: Record = {
            "validationErrors": expected_errors if Counter(errors) == Counter(expected_errors or ()) else errors
        }
        try:
            compiled = selector_from(selector)
        except SelectorError as error:
            unordered = "map iteration order" in record.get("error", "")
            return actual | {"error": record["error"] if unordered else str(error)}
        actual |= {"matches": compiled.matches(record["labels"]), "string": str(compiled), "empty": compiled.empty}
        return actual | {"error": None}

    check(records, SELECTORS, "labelSelector", evaluate)


def test_label_selector_strings_match_kubernetes(records):
    def evaluate(record: Record) -> Record:
        try:
            selector = parse_label_selector(record["input"])
        except SelectorError as error:
            return {"error": str(error)}
        tests = [{"labels": t["labels"], "matches": selector.matches(t["labels"])} for t in record.get("tests", ())]
        return {"error": None, "string": str(selector), "empty": selector.empty, "tests": tests}

    check(records, SELECTORS, "labelSelectorString", evaluate)


def test_field_selector_strings_match_kubernetes(records):
    def evaluate(record: Record) -> Record:
        try:
            selector = parse_field_selector(record["input"])
        except SelectorError as error:
            return {"error": str(error)}
        tests = [{"fields": t["fields"], "matches": selector.matches(t["fields"])} for t in record.get("tests", ())]
        return {"error": None, "string": str(selector), "empty": selector.empty, "tests": tests}

    check(records, SELECTORS, "fieldSelectorString", evaluate)


def test_node_selectors_match_kubernetes(records):
    def evaluate(record: Record) -> Record:
        matcher = NodeSelectorMatcher(convert(api_types.NodeSelector, record["nodeSelector"]))
        node = record["nodeName"], record["nodeLabels"] or {}
        actual: Record = {"parseError": None, "lazyError": None, "lazyMatches": matcher.matches(*node)}
        try:
            matcher.check()
            actual["matches"] = matcher.matches(*node)
        except SelectorError as error:
            actual["parseError"] = str(error)
        try:
            matcher.matches_or_raises(*node)
        except SelectorError as error:
            actual["lazyError"] = str(error)
        return actual

    check(records, SELECTORS, "nodeSelector", evaluate)


def test_required_node_affinity_matches_kubernetes(records):
    def evaluate(record: Record) -> Record:
        affinity = None if record["affinity"] is None else convert(api_types.Affinity, record["affinity"])
        required = RequiredNodeAffinity(record["nodeSelector"] or {}, affinity)
        node = record["nodeName"], record["nodeLabels"] or {}
        actual: Record = {"matches": required.matches(*node), "error": None}
        try:
            required.matches_or_raises(*node)
        except SelectorError as error:
            actual["error"] = str(error)
        return actual

    check(records, SELECTORS, "requiredNodeAffinity", evaluate)


def test_preferred_scheduling_terms_match_kubernetes(records):
    def evaluate(record: Record) -> Record:
        try:
            preferred = PreferredNodeAffinity(
                convert(tuple[api_types.PreferredSchedulingTerm, ...], record["terms"] or [])
            )
        except SelectorError as error:
            return {"error": str(error)}
        return {"error": None, "score": preferred.score(record["nodeName"], record["nodeLabels"] or {})}

    check(records, SELECTORS, "preferredSchedulingTerms", evaluate)


def test_tolerations_match_kubernetes(records):
    def evaluate(record: Record) -> Record:
        toleration = convert(api_types.Toleration, record["toleration"])
        taint = convert(api_types.Taint, record["taint"])
        errors = validation_errors(validate_tolerations, "spec.tolerations", [record["toleration"]])
        return {"tolerates": tolerates(toleration, taint), "validationErrors": errors or None}

    check(records, SELECTORS, "toleration", evaluate)


def test_first_untolerated_taint_matches_kubernetes(records):
    def evaluate(record: Record) -> Record:
        taints = convert(tuple[api_types.Taint, ...], record["taints"] or [])
        tolerations = convert(tuple[api_types.Toleration, ...], record["tolerations"] or [])
        taint = find_untolerated_taint(taints, tolerations)
        return {
            "firstUntoleratedTaint": None if taint is None else api_types.to_json(taint),
            "untolerated": taint is not None,
        }

    check(records, SELECTORS, "untoleratedTaint", evaluate)


def test_pod_affinity_terms_match_kubernetes(records):
    def evaluate(record: Record) -> Record:
        try:
            term = AffinityTerm(record["ownerNamespace"], convert(api_types.PodAffinityTerm, record["term"]))
        except SelectorError as error:
            return {"error": str(error)}
        return {
            "error": None,
            "effectiveNamespaces": sorted(term.namespaces),
            "matches": term.matches(record["podNamespace"], record["podLabels"] or {}, record["namespaceLabels"] or {}),
        }

    check(records, SELECTORS, "podAffinityTerm", evaluate)


def test_controller_selectors_match_kubernetes(records):
    def evaluate(record: Record) -> Record:
        cases = record["out"]["cases"]
        try:
            selector = selector_from(label_selector(record["in"]["selector"]))
        except SelectorError:
            return {"out": {"valid": False, "empty": None, "cases": [case | {"matches": None} for case in cases]}}
        matches = [case | {"matches": selector.matches(case["labels"] or {})} for case in cases]
        return {"out": {"valid": True, "empty": selector.empty, "cases": matches}}

    check(records, "controllers/tables/selector_matches.jsonl.gz", "", evaluate)
