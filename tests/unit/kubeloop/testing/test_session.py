"""Clusters of one pytest process."""

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.testing.session import Session


def test_invalid_option_is_reported_before_a_cluster_starts(tmp_path):
    session = Session({"nodes": "many"}, root=tmp_path, keep=False, shared_address=None)
    with pytest.raises(UserError, match="nodes"):
        session.check()
    assert session.close() == []


def test_valid_options_start_no_process(tmp_path):
    session = Session({"nodes": "3"}, root=tmp_path, keep=False, shared_address=None)
    session.check()
    assert not session.has_failures
    assert session.close() == []
