"""Generates kube/schema/types.json from the Go sources of Kubernetes' API.

    PYTHONPATH=tests python -m support.development.generate_schema FOLDER TAG

FOLDER has clones (bare ones are sufficient) of the repositories in SOURCES, in folders of the same names; TAG is their
common version, such as "v0.36.0". Copied are only facts: names of types and fields, their types, protobuf numbers, and
markers for merging lists and maps and for optional fields. Comments are not copied.

The rules for required fields and markers are those of kube-openapi's generators. Imports the standard library only.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parents[3] / "kube" / "schema" / "types.json"


@dataclass(frozen=True, slots=True)
class Package:
    """One Go package: its location, the name of the package in type names, and the API group of its kinds.

    only: names of the struct types to include; () for all.
    """

    repository: str
    folder: str
    name: str
    group: str | None = None
    only: tuple[str, ...] = ()


def _api(group: str, *versions: str, folder: str = "") -> tuple[Package, ...]:
    folder = folder or group.partition(".")[0]
    return tuple(Package("api", f"{folder}/{version}", f"{folder}/{version}", group) for version in versions or ("v1",))


_TAINT_RULES = (
    "DeviceTaint", "DeviceTaintEffect", "DeviceTaintRule", "DeviceTaintRuleList", "DeviceTaintRuleSpec",
    "DeviceTaintRuleStatus", "DeviceTaintSelector",
)  # fmt: skip
"""Types of DeviceTaintRules; the other kinds of their version are served in v1 only."""

SOURCES: tuple[Package, ...] = (
    *_api("", folder="core"),
    *_api("apps"),
    *_api("policy"),
    *_api("scheduling.k8s.io", "v1", "v1alpha2"),
    *_api("storage.k8s.io"),
    *_api("storagemigration.k8s.io", "v1beta1"),
    *_api("coordination.k8s.io"),
    *_api("batch"),
    *_api("networking.k8s.io"),
    *_api("rbac.authorization.k8s.io", folder="rbac"),
    *_api("autoscaling", "v1", "v2"),
    *_api("discovery.k8s.io"),
    *_api("events.k8s.io"),
    *_api("node.k8s.io"),
    *_api("authentication.k8s.io"),
    *_api("authorization.k8s.io"),
    *_api("admissionregistration.k8s.io"),
    *_api("certificates.k8s.io"),
    *_api("flowcontrol.apiserver.k8s.io"),
    *_api("resource.k8s.io"),
    Package("api", "resource/v1beta2", "resource/v1beta2", "resource.k8s.io", only=_TAINT_RULES),
    *_api("apidiscovery.k8s.io", "v2", folder="apidiscovery"),
    Package("apiextensions-apiserver", "pkg/apis/apiextensions/v1", "apiextensions/v1", "apiextensions.k8s.io"),
    Package("kube-aggregator", "pkg/apis/apiregistration/v1", "apiregistration/v1", "apiregistration.k8s.io"),
    Package("apimachinery", "pkg/apis/meta/v1", "meta/v1"),
    Package("apimachinery", "pkg/runtime", "runtime", only=("TypeMeta", "Unknown")),
    Package("apimachinery", "pkg/types", "types", only=("UID",)),
    Package("apimachinery", "pkg/version", "version", only=("Info",)),
)
_IMPORTS = {
    "k8s.io/apimachinery/pkg/apis/meta/v1": "meta/v1",
    "k8s.io/apimachinery/pkg/api/resource": "resource",
    "k8s.io/apimachinery/pkg/util/intstr": "intstr",
    "k8s.io/apimachinery/pkg/runtime": "runtime",
    "k8s.io/apimachinery/pkg/types": "types",
    "k8s.io/apimachinery/pkg/watch": "watch",
}
_FILES = re.compile(r".*/(types(_jsonschema)?|uid|register|watch|group_version)\.go")
SINGLE_VALUES = frozenset({
    "meta/v1.Time", "meta/v1.MicroTime", "meta/v1.Duration", "meta/v1.FieldsV1",
    "apiextensions/v1.JSON", "apiextensions/v1.JSONSchemaPropsOrArray", "apiextensions/v1.JSONSchemaPropsOrBool",
    "apiextensions/v1.JSONSchemaPropsOrStringArray",
})  # fmt: skip
"""Structs that are encoded as a single JSON value, as in `kube.schema.SCALARS`."""

_STRUCT = re.compile(r"^type (\w+) struct ?\{(?:(\n.*?)^)?\}", re.M | re.S)
_COMMENT = re.compile(r"//.*")
_TYPE_LINE = re.compile(r"^type (\w+) (?:= )?(?!struct|interface)([\w\[\].*]+)$", re.M)
_FIELD = re.compile(r"^\s*(?:(\w+)\s+)?([\w\[\].*]+)\s*`([^`]*)`")
_TAG = re.compile(r'(\w+):"([^"]*)"')
_CONST = re.compile(
    r'^\s*(?P<name>\w+)(?:\s+(?P<type>\w+)\s*=\s*|\s*=\s*(?P<cast>\w+)\()(?:"(?P<text>[^"]*)"|(?P<other>\w+\.\w+)\))',
    re.M,
)
_REFERENCE = re.compile(r"ref\((\w+)\)")
_KNOWN = re.compile(r"AddKnownTypes\(\s*SchemeGroupVersion,(.*?)\n\t\)", re.S)
_BUILT_IN = frozenset({"string", "bool", "byte", "int", "int32", "int64", "float64", "uint32", "uint64"})


@dataclass(slots=True)
class _Tables:
    """Content of types.json."""

    kinds: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    enums: dict[str, list[str]] = field(default_factory=dict)
    atomic: set[str] = field(default_factory=set)
    types: dict[str, list[list[Any]]] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    """Constants by qualified name; not in types.json."""


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(("git", "-C", str(folder), *arguments), check=True, capture_output=True, text=True).stdout


def _files(folder: Path, tag: str, package: Package) -> dict[str, str]:
    names = _git(folder, "ls-tree", "--name-only", tag, package.folder + "/").split()
    return {name: _git(folder, "show", f"{tag}:{name}") for name in names if _FILES.fullmatch(name)}


def _imports(text: str) -> dict[str, str]:
    """Return the packages of types.json by their name in the file."""
    result: dict[str, str] = {}
    for alias, path in re.findall(r'^\s*(?:import )?(\w+)?\s*"([\w./-]+)"$', text, re.M):
        named = _IMPORTS.get(path)
        if named is None and path.startswith("k8s.io/api/"):
            named = path.removeprefix("k8s.io/api/")
        if named is not None:
            result[alias or path.rpartition("/")[2]] = named
    return result


def _qualified(go_type: str, package: str, imports: dict[str, str]) -> str:
    """Return a Go type expression with qualified names: "*v1.Time" as "*meta/v1.Time"."""

    def one(match: re.Match[str]) -> str:
        prefix, _, name = match[0].rpartition(".")
        if prefix:
            return f"{imports[prefix]}.{name}"
        return name if name in _BUILT_IN or name == "map" else f"{package}.{name}"

    return re.sub(r"[\w.]+", one, go_type)


def _markers(lines: list[str]) -> dict[str, str]:
    """Return the +markers of a comment. Of a repeated one the first counts, except listMapKey, which is joined."""
    result: dict[str, str] = {}
    for line in lines:
        if not line.startswith("+"):
            continue
        name, _, value = line[1:].partition("=")
        name = name.strip()
        if name == "listMapKey" and name in result:
            result[name] += "," + value.strip()
        else:
            result.setdefault(name, value.strip())
    return result


def _comment_before(text: str, position: int) -> dict[str, str]:
    """Return the markers of the comments above a declaration, skipping one blank line."""
    lines: list[str] = []
    blanks = 0
    for line in reversed(text[:position].splitlines()):
        stripped = line.strip()
        if stripped.startswith("//"):
            lines.append(stripped.lstrip("/").strip())
        elif not stripped and not blanks:
            blanks += 1
        else:
            break
    return _markers(lines[::-1])


def _default(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _row(go_name: str, go_type: str, tags: dict[str, str], markers: dict[str, str]) -> list[Any]:
    name, *options = tags.get("json", "").split(",")
    wire, number = "", 0
    if protobuf := tags.get("protobuf"):
        wire, digits, *_ = protobuf.split(",")
        number = int(digits)
    embedded = not go_name
    inline = "inline" in options or (embedded and not name)
    flags = "i" * inline + "e" * embedded
    omitted = "omitempty" in options or "omitzero" in options
    optional = ("optional" in markers or omitted) and "required" not in markers
    if not inline:
        flags += "o" * ("omitempty" in options) + "z" * ("omitzero" in options) + "r" * (not optional)
    go_name = go_name or go_type.rpartition(".")[2]
    row: list[Any] = [go_name, name, go_type, number, wire, flags]
    extra: dict[str, Any] = {}
    for tag in ("patchStrategy", "patchMergeKey"):
        if tag in tags:
            extra[tag] = tags[tag]
    if "listType" in markers:
        extra["listType"] = markers["listType"]
    if "listMapKey" in markers:
        extra["listMapKeys"] = markers["listMapKey"].split(",")
    for marker in ("mapType", "structType"):
        if marker in markers:
            extra[marker] = markers[marker]
    if "default" in markers:
        extra["default"] = _default(markers["default"])
    return [*row, extra] if extra else row


def _fields(body: str, package: str, imports: dict[str, str]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    comment: list[str] = []
    for line in body.splitlines():
        stripped = line.strip()
        if stripped.startswith("//"):
            comment.append(stripped.lstrip("/").strip())
            continue
        if match := _FIELD.match(line):
            tags = dict(_TAG.findall(match[3]))
            if tags.get("json") != "-":
                go_type = _qualified(match[2], package, imports)
                rows.append(_row(match[1] or "", go_type, tags, _markers(comment)))
        comment = []
    return rows


def _read(tables: _Tables, package: Package, files: dict[str, str]) -> None:
    constants: dict[str, list[str]] = {}  # qualified names by type
    marked: set[str] = set()
    for path, text in files.items():
        imports = _imports(text)
        if path.endswith("register.go"):
            _read_kinds(tables, package, text)
            continue
        for match in _STRUCT.finditer(text):
            name = f"{package.name}.{match[1]}"
            if name in SINGLE_VALUES or (package.only and match[1] not in package.only):
                continue
            body = match[2] or ""
            rows = _fields(body, package.name, imports)
            if not rows and _COMMENT.sub("", body).strip():
                continue  # a Go type that is not part of the API
            tables.types[name] = rows
            if _comment_before(text, match.start()).get("structType") == "atomic":
                tables.atomic.add(name)
        for match in _TYPE_LINE.finditer(text):
            if package.only and match[1] not in package.only:
                continue
            name = f"{package.name}.{match[1]}"
            tables.aliases[name] = _qualified(match[2], package.name, imports)
            if "enum" in _comment_before(text, match.start()):
                marked.add(match[1])
        for constant in _CONST.finditer(text):
            name = f"{package.name}.{constant['name']}"
            if constant["other"]:
                tables.constants[name] = tables.constants.get(_qualified(constant["other"], package.name, imports), "")
            else:
                tables.constants[name] = constant["text"]
            constants.setdefault(constant["type"] or constant["cast"], []).append(name)
    for name in sorted(marked):
        texts = (tables.constants[constant] for constant in constants.get(name, ()))
        tables.enums[f"{package.name}.{name}"] = list(dict.fromkeys(texts))
    for name, rows in tables.types.items():
        if name.startswith(f"{package.name}."):
            _resolve_defaults(tables, package, rows)


def _resolve_defaults(tables: _Tables, package: Package, rows: list[list[Any]]) -> None:
    """Replace defaults that name a constant by its text."""
    for row in rows:
        extra = row[-1] if isinstance(row[-1], dict) else {}
        if isinstance(extra.get("default"), str) and (reference := _REFERENCE.fullmatch(extra["default"])):
            extra["default"] = tables.constants[f"{package.name}.{reference[1]}"]


def _read_kinds(tables: _Tables, package: Package, text: str) -> None:
    if package.group is None:
        return
    version = package.name.rpartition("/")[2]
    for block in _KNOWN.findall(text):
        for kind in re.findall(r"&(\w+)\{\}", block):
            tables.kinds[f"{package.group}/{version}/{kind}"] = f"{package.name}.{kind}"


def read(folder: Path, tag: str) -> _Tables:
    """Read the Go sources. Raises FileNotFoundError for a missing clone, CalledProcessError for an unknown tag."""
    tables = _Tables()
    for package in SOURCES:
        _read(tables, package, _files(_clone(folder, package.repository), tag, package))
    tables.kinds = {key: name for key, name in tables.kinds.items() if name in tables.types}
    return tables


def _clone(folder: Path, repository: str) -> Path:
    if not (folder / repository).is_dir():
        raise FileNotFoundError(f"there is no clone of kubernetes/{repository} in {folder}")
    return folder / repository


def render(tables: _Tables) -> str:
    """Format types.json with one field, alias or kind per line, so that diffs between versions are readable."""
    parts = []
    for name, value in (
        ("kinds", tables.kinds),
        ("aliases", dict(sorted(tables.aliases.items()))),
        ("enums", dict(sorted(tables.enums.items()))),
        ("atomic", sorted(tables.atomic)),
        ("types", tables.types),
    ):
        if isinstance(value, dict):
            lines = [f"{json.dumps(key)}: {_value(entry)}" for key, entry in value.items()]
            parts.append(f'"{name}": {{\n' + ",\n".join(lines) + "\n}")
        else:
            parts.append(f'"{name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _value(value: Any) -> str:
    if not value or not isinstance(value, list) or not isinstance(value[0], list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "]"


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: PYTHONPATH=tests python -m support.development.generate_schema FOLDER TAG", file=sys.stderr)
        return 2
    OUTPUT.write_text(render(read(Path(arguments[0]), arguments[1])), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
