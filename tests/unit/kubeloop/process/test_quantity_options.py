"""Resource quantities in options."""

import pytest

from kubeloop.kube.errors import UserError
from kubeloop.process.quantity_options import positive_quantity


@pytest.mark.parametrize("text", ["8", "500m", "32Gi", "1e3"])
def test_positive_quantity_is_returned_unchanged(text):
    assert positive_quantity(text, "--node-cpu") == text


@pytest.mark.parametrize("text", ["0", "-1", "much", ""])
def test_other_values_are_rejected_with_the_option(text):
    with pytest.raises(UserError, match=f"--node-cpu {text}"):
        positive_quantity(text, "--node-cpu")
