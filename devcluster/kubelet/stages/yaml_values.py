"""Values of stage files with their positions, for errors that state file and line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from kubeloop.devcluster.languages.gotemplate.syntax import Arity, TemplateError
from kubeloop.devcluster.languages.gotemplate.template import Template
from kubeloop.devcluster.languages.jq import JqError, Query
from kubeloop.kube import yaml as yaml_text
from kubeloop.kube.user_error import UserError, read_text

if TYPE_CHECKING:
    from kubeloop.devcluster.kubelet.stages.expressions import StageExpression

_HINT = "--stages takes a YAML file of KWOK stages"
CONTEXT: dict[str, Arity] = {
    "Now": (0, 0),
    "StartTime": (0, 0),
    "Version": (0, 0),
    "NodeIP": (0, 0),
    "NodeName": (0, 0),
    "NodePort": (0, 0),
    "PodIP": (0, 0),
    "NodeIPWith": (1, 1),
    "NodeIPsWith": (1, 1),
    "PodIPWith": (5, 5),
    "PodIPsWith": (5, 5),
}
"""Template functions that need the cluster, and the least and greatest number of their arguments."""


def read_documents(path: Path) -> list[YamlValue]:
    """Return the documents of a file that are not empty. Raises UserError."""
    text = read_text(path, hint=_HINT)
    try:
        with yaml_text.yaml_errors():
            documents = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]
    except yaml_text.InvalidYaml as error:
        raise UserError(f"{path}: {error.place}", hint=_HINT) from None
    return [YamlValue(path, document) for document in documents if not _is_null(document)]


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")


class YamlValue:
    """A YAML value with its position in the file. name: path of its field, such as `spec.delay`."""

    def __init__(self, path: Path, node: yaml.Node, name: str = "") -> None:
        self._path = path
        self._node = node
        self._name = name

    def error(self, problem: str, *, line: int | None = None, hint: str = "") -> UserError:
        """Return an error with file, line and field; without `line`, that of the value."""
        number = self._node.start_mark.line + 1 if line is None else line
        field = f"{self._name}: " if self._name else ""
        return UserError(
            f"{self._path}:{number}: {field}{problem}", hint=hint or "docs/nodes.md lists what stages support"
        )

    @property
    def kind(self) -> str:
        """Return apiVersion and kind of a document in one text; "" if it is not a map."""
        if not isinstance(self._node, yaml.MappingNode):
            return ""
        fields = {key.value: node.value for key, node in self._node.value}
        return f"{fields.get('apiVersion', '')} {fields.get('kind', '')}"

    @property
    def folder(self) -> Path:
        """Return the folder of the file."""
        return self._path.parent

    def fields(self, *known: str) -> YamlFields:
        """Return the fields of a map that are not null. Raises UserError for fields that `known`, if any, lacks."""
        if not isinstance(self._node, yaml.MappingNode):
            raise self.error("a map is required")
        fields = YamlFields(self)
        for key, node in self._node.value:
            name = f"{self._name}.{key.value}" if self._name else key.value
            if key.value not in known and known:
                raise YamlValue(self._path, key, self._name).error(f"field {key.value!r} is not supported")
            if key.value in fields:
                raise YamlValue(self._path, key, self._name).error(f"{key.value!r} is set twice")
            if not _is_null(node) or node.style:
                fields[key.value] = YamlValue(self._path, node, name)
        return fields

    def items(self) -> list[YamlValue]:
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.error("a list is required")
        return [YamlValue(self._path, item, f"{self._name}[{index}]") for index, item in enumerate(self._node.value)]

    def text(self) -> str:
        if not isinstance(self._node, yaml.ScalarNode):
            raise self.error("a string is required")
        return str(self._node.value)

    def texts(self) -> dict[str, str]:
        return {name: value.text() for name, value in self.fields().items()}

    def one_of(self, *values: str) -> str:
        if self.text() not in values:
            raise self.error(f"{self.text()!r} is not one of {', '.join(values)}")
        return self.text()

    def boolean(self) -> bool:
        return self.one_of("true", "false") == "true"

    def number(self) -> int:
        if not re.fullmatch(r"\d+", self.text()):
            raise self.error(f"{self.text()!r} is not a non-negative integer")
        return int(self.text())

    def query(self) -> Query:
        try:
            return Query(self.text())
        except JqError as error:
            raise self.error(f"jq expression {self.text()!r}: {error}") from None

    def expression(self) -> StageExpression:
        """Compile the CEL expression of a map with the field `expression`. Imports the compiler on first use."""
        from kubeloop.devcluster.kubelet.stages.expressions import InvalidExpression, StageExpression

        value = self.fields("expression").required("expression")
        text = value.text().strip()
        try:
            return StageExpression(text)
        except InvalidExpression as error:
            raise value.error(f"CEL expression {text!r}: {error}") from None

    def user(self) -> str:
        """Return the user of an impersonation."""
        username = self.fields("username").text("username")
        if not username:
            raise self.error("username is missing")
        return username

    def template(self) -> Template:
        """Compile a template. Errors state its line in the file, also within a block scalar."""
        text = self.text()
        assert isinstance(self._node, yaml.ScalarNode)
        block = self._node.style in ("|", ">")
        trimmed = text.lstrip()
        first = self._node.start_mark.line + 1 + block + text[: len(text) - len(trimmed)].count("\n")
        try:
            return Template(trimmed.rstrip(), context=CONTEXT)
        except TemplateError as error:
            raise self.error(f"template: {error.problem}", line=first + error.line - 1) from None


class YamlFields(dict[str, YamlValue]):
    """Fields of a map by name. Methods with a name return the value of that field, or a default if it is absent."""

    def __init__(self, value: YamlValue) -> None:
        super().__init__()
        self._value = value

    def required(self, name: str) -> YamlValue:
        """Return a field. Raises UserError if it is absent."""
        if name not in self:
            raise self._value.error(f"{name} is missing")
        return self[name]

    def text(self, name: str, default: str = "") -> str:
        return self[name].text() if name in self else default

    def boolean(self, name: str, *, default: bool = False) -> bool:
        return self[name].boolean() if name in self else default

    def number(self, name: str) -> int | None:
        return self[name].number() if name in self else None

    def items_of(self, name: str) -> list[YamlValue]:
        return self[name].items() if name in self else []

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items_of(name))

    def fields(self, name: str, *known: str) -> YamlFields:
        return self[name].fields(*known) if name in self else YamlFields(self._value)

    def file(self, name: str) -> Path | None:
        """Return a path relative to the folder of the file."""
        return self[name].folder / self[name].text() if name in self else None

    def user(self, name: str) -> str:
        """Return the user of an impersonation."""
        return self[name].user() if name in self else ""
