"""Quantities: examples and properties. The full table is in tests/oracle."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.kube.values.quantities import Format, QuantityError, milli_value, parse_quantity, value
from support.comparison.go_numbers import go_numbers


@pytest.mark.parametrize(
    ("text", "canonical", "whole", "milli"),
    [
        ("0", "0", 0, 0),
        ("1", "1", 1, 1000),
        ("100m", "100m", 1, 100),
        ("1.5", "1500m", 2, 1500),
        ("1.5Gi", "1536Mi", 1610612736, 1610612736000),
        ("1024Ki", "1Mi", 1048576, 1048576000),
        ("0.5Ki", "512", 512, 512000),
        ("2e3", "2e3", 2000, 2000000),
        ("1E", "1E", 10**18, 0),  # more than int64 holds
        ("0.1n", "1n", 1, 1),
        ("-1.1", "-1100m", -2, -1100),
        ("9Ei", "9223372036854775807", 2**63 - 1, None),
    ],
)
def test_values_are_exact_and_rounded_up(text, canonical, whole, milli):
    parsed = parse_quantity(text)
    assert parsed.canonical() == canonical
    assert parsed.value() == value(text) == whole
    if milli is not None:
        assert parsed.milli_value() == milli_value(text) == milli


@pytest.mark.parametrize("text", ["", " ", "1 ", "1Kb", "one", "1.2.3", "1e", "--1", "1K", "1ki", "٣", "."])
def test_invalid_quantity_is_error(text):
    if text == ".":
        assert parse_quantity(text).value() == 0  # as the API server returns it
        return
    with pytest.raises(QuantityError):
        parse_quantity(text)


def test_json_numbers_are_quantities():
    assert parse_quantity(2).value() == 2
    assert parse_quantity(0.1).milli_value() == 100
    assert parse_quantity(1e21).canonical() == "1e21"


SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
texts = st.builds(
    "{}{}{}".format,
    st.integers(-(10**5), 10**5),
    st.one_of(st.just(""), st.integers(0, 999).map(".{:03d}".format)),
    st.sampled_from([*SUFFIXES, "Ki", "Mi", "Gi", "e2", "E-2"]),
)


def exact(text: str) -> Fraction:
    """Return the value of a text as a Fraction, rounded up to nano as quantities are."""
    number = (
        text.rstrip("numkMGTPKi") if "e" not in text and "E" not in text else text.replace("E", "e").partition("e")[0]
    )
    suffix = text[len(number) :]
    if suffix in SUFFIXES:
        scale = Fraction(10) ** SUFFIXES[suffix]
    elif suffix.endswith("i"):
        scale = Fraction(1024) ** (" KMG".index(suffix[0]))
    else:
        scale = Fraction(10) ** int(suffix[1:])
    nano = abs(Fraction(number) * scale) * 10**9
    magnitude = Fraction(-(-nano.numerator // nano.denominator), 10**9)
    return -magnitude if Fraction(number) < 0 else magnitude


@given(texts)
def test_canonical_form_has_same_value(text):
    parsed = parse_quantity(text)
    reparsed = parse_quantity(parsed.canonical())
    assert reparsed == parsed
    assert reparsed.canonical() == parsed.canonical()
    assert hash(reparsed) == hash(parsed)


@given(texts, texts)
def test_arithmetic_and_order_equal_fractions(a, b):
    x, y = parse_quantity(a), parse_quantity(b)
    assert (x + y) - y == x
    assert (x + y) == (y + x)
    difference = exact(a) - exact(b)
    assert x.compare(y) == (difference > 0) - (difference < 0)
    assert (x < y) == (difference < 0)
    assert (-x).compare(-y) == -x.compare(y)


@given(texts)
def test_rounding_is_away_from_zero(text):
    parsed, number = parse_quantity(text), exact(text)
    if parsed._small and abs(number) * 1000 < 2**63:
        magnitude = -(-abs(number).numerator // abs(number).denominator)
        assert parsed.value() == (magnitude if number >= 0 else -magnitude)


def test_sum_has_format_of_first_nonzero_operand():
    assert (parse_quantity("1Mi") + parse_quantity("1M")).format is Format.BINARY_SI
    assert (parse_quantity("0") + parse_quantity("1Mi")).canonical() == "1Mi"
    assert (parse_quantity("3") * 2).canonical() == "6"


def test_quantities_at_the_limits_have_the_result_of_kubernetes() -> None:
    for text, result in go_numbers("quantity"):
        if "error" in result:
            with pytest.raises(QuantityError) as raised:
                parse_quantity(text)
            assert str(raised.value) == result["error"], text
            continue
        parsed = parse_quantity(text)
        values = {"milli": parsed.milli_value(), "sign": parsed.sign, "value": parsed.value()}
        assert {"format": parsed.format.value, "string": str(parsed), **values} == result, text


@given(
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-(10**40), 10**40)),
    st.one_of(
        st.sampled_from([*SUFFIXES, "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]), st.integers(-300, 300).map("e{}".format)
    ),
)
def test_canonical_form_of_any_number_and_suffix_has_the_same_value(number: int, suffix: str) -> None:
    parsed = parse_quantity(f"{number}{suffix}")
    canonical = parsed.canonical()
    assert parse_quantity(canonical).canonical() == canonical
    assert -(2**63) <= parsed.value() < 2**63
    if parsed.format is not Format.DECIMAL_SI:  # has no suffix for 10**21 and more, as in Kubernetes
        assert parsed.compare(parse_quantity(canonical)) == 0
