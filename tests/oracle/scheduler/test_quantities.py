"""Quantities compared with Kubernetes: parsing, printing, rounding and arithmetic."""

from __future__ import annotations

from kubeloop.kube.values.quantities import QuantityError, parse_quantity


def test_quantities_match_kubernetes(records):
    count, mismatches = 0, []
    for record in records("scheduler/resources.jsonl.gz"):
        if record["type"] != "quantity":
            continue
        count += 1
        try:
            parsed = parse_quantity(record["input"])
            actual = {
                "canonical": str(parsed),
                "canonicalRecomputed": parsed.canonical(),
                "format": parsed.format.value,
                "milliValue": parsed.milli_value(),
                "sign": parsed.sign,
                "value": parsed.value(),
            }
        except QuantityError as error:
            actual = {"error": str(error)}
        actual |= {"input": record["input"], "type": "quantity"}
        if actual != record:
            mismatches.append((record, actual))
    assert count
    assert mismatches == []


def test_quantity_arithmetic_matches_kubernetes(records):
    count, mismatches = 0, []
    for record in records("scheduler/resources.jsonl.gz"):
        if record["type"] != "quantityArithmetic":
            continue
        count += 1
        a, b = parse_quantity(record["a"]), parse_quantity(record["b"])
        actual = {
            "a": record["a"],
            "b": record["b"],
            "compare": a.compare(b),
            "difference": (a - b).canonical(),
            "sum": (a + b).canonical(),
            "type": "quantityArithmetic",
        }
        if actual != record:
            mismatches.append((record, actual))
    assert count
    assert mismatches == []
