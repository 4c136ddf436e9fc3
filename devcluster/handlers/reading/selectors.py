"""Label and field selectors of lists and watches. A selection is a predicate on JSON objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.selectable_fields import METADATA
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.api.strategy import Getter, strategy_of
from kubeloop.devcluster.serializer.conversion import from_stored
from kubeloop.kube.json_object import JSON
from kubeloop.kube.selectors.selectors import FieldSelector, SelectorError, parse_field_selector, parse_label_selector

Selection = Callable[[JSON], bool]


def _parse_fields(text: str) -> FieldSelector:
    """Parse a field selector. Raises StatusError 400 with Kubernetes' message."""
    try:
        return parse_field_selector(text)
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error


def selected_name(field_selector: str) -> str:
    """Return the name that a field selector requires, "" if none. Raises StatusError 400."""
    if "metadata.name" not in field_selector:
        return ""
    return _parse_fields(field_selector).exact("metadata.name") or ""


def _field_getters(served: ServedResource, selector: FieldSelector) -> list[tuple[Getter, bool, str]]:
    strategy = strategy_of(served.resource)
    own = strategy.selectable_fields
    field_getters = METADATA if own is None else own
    bound = []
    for field, operator, value in selector.terms:
        getter = field_getters.get(field)
        if getter is None:
            if own is None:
                supported = '"metadata.name", "metadata.namespace"'
                raise errors.bad_request(f'"{field}" is not a known field selector: only {supported}')
            raise errors.bad_request(strategy.unknown_field.format(field=field))
        bound.append((getter, operator == "=", value))
    return bound


def selection(served: ServedResource, label_selector: str, field_selector: str) -> Selection | None:
    """Return the predicate of both selectors on stored objects, None if they match everything. Raises StatusError 400.

    Fields of a version that a webhook converts are those after the conversion, see prepare_conversions().
    """
    try:
        labels = parse_label_selector(label_selector) if label_selector else None
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error
    fields = _field_getters(served, _parse_fields(field_selector)) if field_selector else []
    matches = labels.matches if labels is not None and not labels.empty else None
    if matches is None and not fields:
        return None
    if fields and served.crd_version is not None and served.crd_version.uses_webhook:
        return _after_conversion(served, _predicate(matches, fields))
    return _predicate(matches, fields)


def _after_conversion(served: ServedResource, select: Selection) -> Selection:
    """Return a predicate that selects stored objects by their form in the served version.

    It selects those that are not converted, so that the reader of the selected objects gets the error.
    """

    def select_converted(obj: JSON) -> bool:
        try:
            return select(from_stored(served, obj))
        except errors.StatusError:
            return True

    return select_converted


def _predicate(
    matches: Callable[[Mapping[str, str]], bool] | None, fields: Sequence[tuple[Getter, bool, str]]
) -> Selection:
    if matches is None and len(fields) == 1:
        get, equal, value = fields[0]
        return (lambda obj: get(obj) == value) if equal else (lambda obj: get(obj) != value)

    def select(obj: JSON) -> bool:
        if matches is not None and not matches(obj["metadata"].get("labels") or {}):
            return False
        return all((get(obj) == value) is equal for get, equal, value in fields)

    return select
