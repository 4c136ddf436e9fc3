"""Quantities against Kubernetes' own: parsing, printing, rounding and arithmetic."""

from __future__ import annotations

from kubeloop.kube.quantities import QuantityError, parse_quantity


def test_quantities_parse_print_and_round_as_in_kubernetes(records):
    checked, wrong = 0, []
    for record in records("scheduler/resources.jsonl.gz"):
        if record["type"] != "quantity":
            continue
        checked += 1
        try:
            parsed = parse_quantity(record["input"])
            got = {
                "canonical": str(parsed),
                "canonicalRecomputed": parsed.canonical(),
                "format": parsed.format.value,
                "milliValue": parsed.milli_value(),
                "sign": parsed.sign,
                "value": parsed.value(),
            }
        except QuantityError as error:
            got = {"error": str(error)}
        got |= {"input": record["input"], "type": "quantity"}
        if got != record:
            wrong.append((record, got))
    assert checked
    assert wrong == []


def test_sums_differences_and_comparisons_are_those_of_kubernetes(records):
    checked, wrong = 0, []
    for record in records("scheduler/resources.jsonl.gz"):
        if record["type"] != "quantityArithmetic":
            continue
        checked += 1
        a, b = parse_quantity(record["a"]), parse_quantity(record["b"])
        got = {
            "a": record["a"],
            "b": record["b"],
            "compare": a.compare(b),
            "difference": (a - b).canonical(),
            "sum": (a + b).canonical(),
            "type": "quantityArithmetic",
        }
        if got != record:
            wrong.append((record, got))
    assert checked
    assert wrong == []
