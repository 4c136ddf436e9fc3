"""The check of an operator in a test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.testing.faults import FaultsFound
from kubeloop.testing.operator_faults.fixture import check

OPERATORS = Path(__file__).resolve().parents[4] / "operators"
OPERATOR = f"{sys.executable} {OPERATORS / 'site_operator.py'} --kubeconfig {{kubeconfig}}"
FILES = (OPERATORS / "crd.yaml", OPERATORS / "site.yaml")


def test_fixture_is_the_check(kubeloop_check_operator):
    assert kubeloop_check_operator is check


def test_correct_operator_passes():
    report = check(OPERATOR, *FILES, only=["crash-after:create of Secret"], quiet=1, nodes=1)
    assert report.outcomes == {"crash-after:4": "passed"}


def test_finding_fails_the_test_with_the_report():
    command = f"{OPERATOR} --defect secret-by-status"
    sentence = (
        "after a crash between the create of Secret blog-tls-* and the create of PersistentVolumeClaim data-blog-0, "
        "a second Secret default/blog-tls-* was created and never deleted"
    )
    with pytest.raises(FaultsFound) as caught:
        check(command, *FILES, only=["crash-after:create of Secret"], quiet=1, timeout=4, nodes=1)
    assert f"1. {sentence} (after the step 'apply Site blog')" in str(caught.value)
    assert "--timeout=4 --quiet=1 --nodes=1 --only crash-after:4" in str(caught.value)


def test_invalid_option_of_the_cluster_is_an_error():
    with pytest.raises(UserError, match="a cluster has no option 'node'"):
        check(OPERATOR, *FILES, node=1)
