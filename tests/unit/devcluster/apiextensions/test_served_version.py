"""One served version of a definition: order of versions."""

from kubeloop.devcluster.apiextensions.served_version import version_rank


def test_versions_sort_in_discovery_order():
    names = ["v1alpha1", "v10", "v2", "v1beta2", "v1", "foo", "v11beta1", "v1beta1"]
    assert sorted(names, key=version_rank) == ["v10", "v2", "v1", "v11beta1", "v1beta2", "v1beta1", "v1alpha1", "foo"]
