"""`kubeloop manifests`: documents, and errors for built-in controllers."""

from __future__ import annotations

import pytest
import yaml

from kubeloop.cli.manifests import print_manifests
from kubeloop.cli.options.options import ManifestsOptions
from kubeloop.kube.user_error import UserError


def test_documents_are_printed_as_yaml(capsys):
    options = ManifestsOptions(controllers="support.controllers.sites:Sites", image="registry/sites:1", name="shop")
    assert print_manifests(options) == 0
    documents = [*yaml.safe_load_all(capsys.readouterr().out)]
    assert documents[0]["kind"] == "ServiceAccount"
    assert documents[-1]["kind"] == "Deployment"
    assert {document["metadata"]["name"] for document in documents} == {"shop", "shop-election"}


def test_built_in_controllers_are_rejected():
    with pytest.raises(UserError, match="deployment: built-in controllers declare no permissions"):
        print_manifests(ManifestsOptions(controllers="deployment", image="registry/sites:1"))
