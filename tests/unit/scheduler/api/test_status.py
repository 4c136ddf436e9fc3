"""Status of a plugin call: names and classes of codes."""

from __future__ import annotations

import pytest

from kubeloop.scheduler.api.status import Code, Status


@pytest.mark.parametrize(
    ("code", "api_name", "is_rejection"),
    [
        pytest.param(Code.SUCCESS, "Success", False, id="success"),
        pytest.param(Code.ERROR, "Error", False, id="error"),
        pytest.param(Code.UNSCHEDULABLE, "Unschedulable", True, id="unschedulable"),
        pytest.param(
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "UnschedulableAndUnresolvable", True, id="preemption cannot help"
        ),
        pytest.param(Code.WAIT, "Wait", False, id="wait"),
        pytest.param(Code.SKIP, "Skip", False, id="skip"),
        pytest.param(Code.PENDING, "Pending", True, id="pending"),
    ],
)
def test_code_name_and_rejection(code: Code, api_name: str, is_rejection: bool) -> None:
    assert (code.api_name, Status(code).is_rejection) == (api_name, is_rejection)


def test_statuses_are_equal_whatever_their_error() -> None:
    status = Status(Code.ERROR, ("a", "b"), "P", ValueError("a"))
    assert status == Status(Code.ERROR, ("a", "b"), "P", KeyError("b"))
    assert status != Status(Code.ERROR, ("a", "b"), "Q")
    assert status.message == "a, b"
