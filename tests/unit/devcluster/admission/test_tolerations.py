"""Sets of tolerations."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.tolerations import is_superset, merge_tolerations

JSON = dict[str, Any]
EVERYTHING: JSON = {"operator": "Exists"}
KEY: JSON = {"key": "a", "operator": "Exists"}
VALUE: JSON = {"key": "a", "operator": "Equal", "value": "b"}


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        pytest.param(EVERYTHING, VALUE, True, id="no key: all keys"),
        pytest.param(KEY, VALUE, True, id="Exists: all values"),
        pytest.param(VALUE, KEY, False, id="one value"),
        pytest.param(KEY, {**KEY, "key": "b"}, False, id="other key"),
        pytest.param(KEY, {**KEY, "effect": "NoSchedule"}, True, id="no effect: all effects"),
        pytest.param({**KEY, "effect": "NoSchedule"}, KEY, False, id="one effect"),
        pytest.param(
            {**KEY, "effect": "NoExecute", "tolerationSeconds": 5},
            {**KEY, "effect": "NoExecute", "tolerationSeconds": 6},
            False,
            id="shorter",
        ),
        pytest.param({**KEY, "effect": "NoExecute", "tolerationSeconds": 5}, {**KEY, "effect": "NoExecute"}, False,
                     id="limited"),
        pytest.param({"key": "a", "value": "b"}, VALUE, True, id="no operator: Equal"),
        pytest.param(VALUE, {"key": "a", "value": "b"}, False, id="a missing operator of the other is not Equal"),
    ],
)  # fmt: skip
def test_superset(wide: JSON, narrow: JSON, expected: bool):
    assert is_superset(wide, narrow) is expected


def test_merged_tolerations_are_the_widest_in_their_order():
    other = {"key": "z", "operator": "Exists"}
    assert merge_tolerations([VALUE, other], [KEY, other]) == [other, KEY]
