"""Node selectors: required and preferred nodes of a pod, and the nodes of a volume.

Nodes are matched by their labels and their name. A term with an error matches no node; NodeSelectorMatcher describes
which uses report the error. Source: component-helpers scheduling/corev1/nodeaffinity. Imports `objects`, `selectors`
and `validation.field_errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kubeloop.kube.objects.api_types import (
    Affinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from kubeloop.kube.selectors.selectors import (
    FieldSelector,
    Operator,
    Requirement,
    Selector,
    SelectorError,
    requirement_errors,
    selector_from_map,
)
from kubeloop.kube.validation.field_errors import aggregate_message, invalid, not_supported

Labels = Mapping[str, str]

_OPERATORS: dict[str, Operator] = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
    "Gt": "gt",
    "Lt": "lt",
}


class NodeSelectorTermMatcher:
    """One compiled term: all its expressions and fields must match. With `errors` (from compiling) it matches nothing.

    `labels` and `fields` are its compiled parts, for matching columns of nodes; None: no condition.
    """

    __slots__ = ("errors", "fields", "labels", "matches")

    errors: tuple[str, ...]
    labels: Selector | None
    fields: FieldSelector | None
    matches: Callable[[str, Labels], bool]

    def __init__(self, term: NodeSelectorTerm, path: str) -> None:
        """`path`: of the term in its object, for errors. An empty term matches nothing."""
        self.labels = self.fields = None
        errors: list[str] = []
        if term.match_expressions:
            self.labels, problems = _compile_expressions(term.match_expressions, f"{path}.matchExpressions")
            errors += problems
        if term.match_fields:
            self.fields, problems = _compile_fields(term.match_fields, f"{path}.matchFields")
            errors += problems
        self.errors = tuple(errors)
        self.matches = _matcher(self.labels, self.fields) if not errors else _never


def _compile_expressions(expressions: Sequence[NodeSelectorRequirement], path: str) -> tuple[Selector, list[str]]:
    requirements: list[Requirement] = []
    errors: list[str] = []
    for index, expression in enumerate(expressions):
        here = f"{path}[{index}]"
        operator = _OPERATORS.get(expression.operator)
        if operator is None:
            errors.append(str(not_supported(f"{here}.operator", expression.operator, _OPERATORS)))
        elif problems := requirement_errors(expression.key, operator, expression.values, here):
            errors += [str(problem) for problem in problems]
        else:
            requirements.append(Requirement(expression.key, operator, expression.values))
    return Selector(requirements), errors


def _compile_fields(expressions: Sequence[NodeSelectorRequirement], path: str) -> tuple[FieldSelector, list[str]]:
    terms = []
    errors: list[str] = []
    for index, expression in enumerate(expressions):
        here = f"{path}[{index}]"
        if expression.operator not in {"In", "NotIn"}:
            errors.append(str(not_supported(f"{here}.operator", expression.operator, ("In", "NotIn"))))
        elif len(expression.values) != 1:
            errors.append(str(invalid(f"{here}.values", list(expression.values) or None, "must have one element")))
        else:
            terms.append((expression.key, "=" if expression.operator == "In" else "!=", expression.values[0]))
    return FieldSelector(terms), errors  # type: ignore[arg-type]


def _never(_name: str, _labels: Labels) -> bool:
    return False


def _matcher(labels: Selector | None, fields: FieldSelector | None) -> Callable[[str, Labels], bool]:
    if fields is None:
        if labels is None:
            return lambda _name, _labels: True
        labels_match = labels.matches
        return lambda _name, node_labels: labels_match(node_labels)
    fields_match = fields.matches
    if labels is None:
        return lambda name, _labels: not name or fields_match({"metadata.name": name})
    matches = labels.matches
    return lambda name, node_labels: matches(node_labels) and (not name or fields_match({"metadata.name": name}))


class NodeSelectorMatcher:
    """A compiled NodeSelector, of which any term must match. `errors` are those of all terms, in order."""

    __slots__ = ("errors", "terms")

    terms: tuple[NodeSelectorTermMatcher, ...]
    errors: tuple[str, ...]

    def __init__(self, selector: NodeSelector, path: str = "") -> None:
        dot = f"{path}." if path else ""
        self.terms = tuple(
            NodeSelectorTermMatcher(term, f"{dot}nodeSelectorTerms[{index}]")
            for index, term in enumerate(selector.node_selector_terms)
            if term.match_expressions or term.match_fields  # an empty term matches no node
        )
        self.errors = tuple(error for term in self.terms for error in term.errors)

    def check(self) -> None:
        """Reject the whole selector if any term has an error (persistent volumes). Raises SelectorError."""
        if self.errors:
            raise SelectorError(aggregate_message(self.errors))

    def matches(self, name: str, labels: Labels) -> bool:
        """Return True if a node matches any term; terms with errors match none."""
        for term in self.terms:  # noqa: SIM110, a generator would cost more than the terms
            if term.matches(name, labels):
                return True
        return False

    def matches_or_raises(self, name: str, labels: Labels) -> bool:
        """Return matches(), but raise SelectorError if no term matches and some have errors (pods)."""
        if self.matches(name, labels):
            return True
        self.check()
        return False


class RequiredNodeAffinity:
    """nodeSelector and required node affinity of a pod."""

    __slots__ = ("affinity", "node_selector")

    node_selector: Selector
    affinity: NodeSelectorMatcher | None

    def __init__(self, node_selector: Labels, affinity: Affinity | None) -> None:
        self.node_selector = selector_from_map(node_selector)
        required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
        self.affinity = NodeSelectorMatcher(required) if required is not None else None

    @property
    def empty(self) -> bool:
        """True if every node matches."""
        return self.node_selector.empty and self.affinity is None

    def matches(self, name: str, labels: Labels) -> bool:
        """Return True if the pod may run on this node; terms with errors match none."""
        return self.node_selector.matches(labels) and (self.affinity is None or self.affinity.matches(name, labels))

    def matches_or_raises(self, name: str, labels: Labels) -> bool:
        """Return matches(), but raise SelectorError if no term of the affinity matches and some have errors."""
        if not self.node_selector.matches(labels):
            return False
        return self.affinity is None or self.affinity.matches_or_raises(name, labels)


class PreferredNodeAffinity:
    """Preferred terms with a weight. Raises SelectorError if one of them has an error."""

    __slots__ = ("terms",)

    terms: tuple[tuple[int, NodeSelectorTermMatcher], ...]

    def __init__(self, terms: Sequence[PreferredSchedulingTerm]) -> None:
        self.terms = tuple(
            (term.weight, NodeSelectorTermMatcher(term.preference, f"[{index}]"))
            for index, term in enumerate(terms)
            if term.weight and (term.preference.match_expressions or term.preference.match_fields)
        )
        if errors := [error for _, term in self.terms for error in term.errors]:
            raise SelectorError(aggregate_message(errors))

    def score(self, name: str, labels: Labels) -> int:
        """Return the sum of the weights of the terms that match a node."""
        return sum(weight for weight, term in self.terms if term.matches(name, labels))
