"""Objects that an API server would store, and others."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.resources import PODS
from kubeloop.kube.user_error import UserError
from kubeloop.recording.projection import project
from kubeloop.recording.validation import check_object
from support.objects.recorded_objects import pod


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "Potato"}, "the kind is 'Potato'"),
        ({"spec": "x"}, "cannot unmarshal string into Go struct field Pod.spec"),
        ({"status": {"startTime": "noon"}}, 'parsing time "noon"'),
    ],
)
def test_invalid_object_is_refused_with_place_and_name(change: dict[str, Any], problem: str):
    with pytest.raises(UserError, match="file, line 7: pod shop/web-1: ") as error:
        check_object(PODS, {**pod("web-1"), **change}, "file, line 7")
    assert problem in str(error.value)


def test_object_of_a_server_is_accepted_also_without_what_is_not_recorded():
    check_object(PODS, pod("web-1", "node-1", phase="Running"), "file")
    check_object(PODS, project("Pod", pod("web-1")), "file")
