"""Resource quantities in options."""

from __future__ import annotations

from kubeloop.kube.errors import UserError
from kubeloop.kube.quantities import QuantityError, parse_quantity


def positive_quantity(text: str, option: str) -> str:
    """Return `text` if it is a positive quantity. Raises UserError, which names the option."""
    try:
        if parse_quantity(text).value() > 0:
            return text
        problem = "must be more than 0"
    except QuantityError as error:
        problem = str(error)
    raise UserError(f"{option} {text}: {problem}", hint="a quantity such as 8, 500m or 32Gi")
