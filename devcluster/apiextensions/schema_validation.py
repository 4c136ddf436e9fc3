"""What the OpenAPI v3 schema of a custom resource must be: structural, and its defaults valid.

Causes are worded as kube-apiserver does; those that Go finds in the random order of its maps come in that of the schema
here. Sources: apiextensions-apiserver pkg/apiserver/schema/validation.go, pkg/apiserver/schema/defaulting/validation.go
and pkg/apis/apiextensions/validation/validation.go.
"""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.apiextensions.structural_schema import (
    EMBEDDED,
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    META,
    PRESERVE,
    RULES,
    MetadataError,
    Schema,
    check_embedded,
    pruned_value,
    walk,
)
from kubeloop.devcluster.apiextensions.value_validation import same, validate
from kubeloop.devcluster.languages.regex.go_syntax import PatternError
from kubeloop.devcluster.languages.regex.patterns import compile_pattern
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")
_ALLOWED_AT_ROOT = {
    "description": "Description", "type": "Type", "format": "Format", "title": "Title", "maximum": "Maximum",
    "exclusiveMaximum": "ExclusiveMaximum", "minimum": "Minimum", "exclusiveMinimum": "ExclusiveMinimum",
    "maxLength": "MaxLength", "minLength": "MinLength", "pattern": "Pattern", "maxItems": "MaxItems",
    "minItems": "MinItems", "uniqueItems": "UniqueItems", "multipleOf": "MultipleOf", "required": "Required",
    "items": "Items", "properties": "Properties", "externalDocs": "ExternalDocs", "example": "Example",
    PRESERVE: "XPreserveUnknownFields", RULES: "XValidations",
}  # fmt: skip
_JUNCTORS = ("allOf", "anyOf", "oneOf", "not")
_INT_OR_STRING_TYPES = [{"type": "integer"}, {"type": "string"}]
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


def check_schema(errors: ErrorList, schema: Schema, path: str, *, has_status: bool) -> None:
    """All rules of one version's schema; `path` is that of openAPIV3Schema's parent."""
    where = f"{path}.openAPIV3Schema"
    if has_status:
        _check_root_with_status(errors, schema, where)
    if schema.get("nullable"):
        errors.forbidden(f"{where}.nullable", "nullable cannot be true at the root")
    unsupported = _unsupported(schema)
    found = ErrorList()
    if not unsupported:
        _structural(found, schema, "root", where)
        _complete(found, {name: schema[name] for name in _JUNCTORS if name in schema}, schema, where, where)
        found.sort(key=lambda each: f"{each['field']}: {each['message']}")
        if not found:
            _defaults(found, schema, where, root=True)
    errors.extend(found)
    before = len(errors)
    _openapi(errors, schema, where, root=True)
    if not unsupported and not found and any(each.get(RULES) for _, each in walk(schema)):
        _compile_rules(errors, [each["field"] for each in errors[before:]], schema, where)
    if unsupported and not errors:
        errors.invalid(where, "", unsupported)


def _check_root_with_status(errors: ErrorList, schema: Schema, where: str) -> None:
    """Only what is kept if the schema of the status is taken out."""
    if schema.get("type") not in (None, "", "object"):
        told = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        errors.invalid(f"{where}.type", schema["type"], told)
    elif wrong := [name for name in schema if name not in _ALLOWED_AT_ROOT and schema[name]]:
        allowed = " ".join(_ALLOWED_AT_ROOT.values())
        told = f"only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
        errors.invalid(where, {name: schema[name] for name in wrong}, told)


def _unsupported(schema: Schema) -> str:
    """What makes it no structural schema at all, as an error tells it; "" if nothing does."""
    for name in _UNSUPPORTED:
        if schema.get(name):
            return f"OpenAPIV3Schema '{name.lstrip('$') if name == '$schema' else name}' is not supported"
    if isinstance(schema.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    if schema.get(PRESERVE) is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    below = [*(schema.get("properties") or {}).values()]
    below += [schema[name] for name in ("items", "not", "additionalProperties") if isinstance(schema.get(name), dict)]
    below += [each for name in ("allOf", "anyOf", "oneOf") for each in schema.get(name) or ()]
    return next((told for each in below if (told := _unsupported(each))), "")


def _compile_rules(errors: ErrorList, wrong: list[str], schema: Schema, where: str) -> None:
    """Rules of schemas that have nothing wrong in or below them. `wrong`: paths of what is."""
    from kubeloop.devcluster.apiextensions.cel_rules import (  # only those who have rules need the compiler
        Costs,
        check_rules,
    )

    costs = Costs()

    def visit(node: Schema, path: str, times: int | None, uncorrelated: str, *, root: bool) -> None:
        properties, items, more = node.get("properties") or {}, node.get("items"), node.get("additionalProperties")
        below = times
        if node.get("type") == "array" or (node.get("type") == "object" and more is not None):
            limit = node.get("maxItems" if node["type"] == "array" else "maxProperties")
            below = None if limit is None or times is None else times * max(0, limit)
        if isinstance(more, dict):
            visit(more, f"{path}.additionalProperties", below, uncorrelated, root=False)
        for name, each in properties.items():
            # granular and atomic maps alike tell by their names what was before
            visit(each, f"{path}.properties[{name}]", below, uncorrelated, root=False)
        if isinstance(items, dict):
            hidden = uncorrelated or (path if node.get(LIST_TYPE) != "map" else "")
            visit(items, f"{path}.items", below, hidden, root=False)
        if node.get(RULES) and not any(each == path or each.startswith((f"{path}.", f"{path}[")) for each in wrong):
            embedded = root or bool(node.get(EMBEDDED))
            check_rules(
                errors, node, f"{path}.{RULES}", root=embedded, times=times, uncorrelated=uncorrelated, costs=costs
            )

    visit(schema, where, 1, "", root=True)
    costs.check(errors, where)


# --- structure --------------------------------------------------------------------------------------------------------


_EMPTY_TYPES = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


def _structural(errors: ErrorList, schema: Schema, level: str, path: str) -> None:
    type_, items = schema.get("type") or "", schema.get("items")
    properties = schema.get("properties") or {}
    if type_ == "array" and items is None:
        errors.required(f"{path}.items", "must be specified")
    if isinstance(items, dict):
        _structural(errors, items, "item", f"{path}.items")
    for name, each in properties.items():
        _structural(errors, each, "field", f"{path}.properties[{name}]")
    more = schema.get("additionalProperties")
    if more is not None:
        if level == "root":
            errors.forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if isinstance(more, dict):
            _structural(errors, more, "field", f"{path}.additionalProperties")
    if schema.get(INT_OR_STRING):
        for extension in (PRESERVE, EMBEDDED):
            if schema.get(extension):
                errors.invalid(f"{path}.{extension}", True, f"must be false if {INT_OR_STRING} is true")
    _value_rules(errors, schema, path)
    _structural_type(errors, schema, level, path)
    embedded, checked = schema.get(EMBEDDED), level == "root" or bool(schema.get(EMBEDDED))
    if embedded and more is not None:
        errors.forbidden(f"{path}.additionalProperties", f"must not be used if {EMBEDDED} is set")
    for name in ("kind", "apiVersion"):
        if checked and name in properties and properties[name].get("type") != "string":
            errors.invalid(f"{path}.properties[{name}].type", properties[name].get("type", ""), "must be string")
    if "metadata" in properties:
        _metadata(errors, properties["metadata"], level, checked, f"{path}.properties[metadata]")
    if embedded and not schema.get(PRESERVE) and not properties:
        told = f"must not be empty if {EMBEDDED} is true without {PRESERVE}"
        errors.required(f"{path}.properties", told)


def _structural_type(errors: ErrorList, schema: Schema, level: str, path: str) -> None:
    type_ = schema.get("type") or ""
    if schema.get(EMBEDDED) and type_ != "object":
        told = f"must be object if {EMBEDDED} is true"
        if type_:
            errors.invalid(f"{path}.type", type_, told)
        else:
            errors.required(f"{path}.type", told)
    elif not type_ and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        errors.required(f"{path}.type", _EMPTY_TYPES[level])
    if level == "root" and type_ and type_ != "object":
        errors.invalid(f"{path}.type", type_, "must be object at the root")


def _metadata(errors: ErrorList, schema: Schema, level: str, checked: bool, path: str) -> None:
    if checked and schema.get("type") != "object":
        errors.invalid(f"{path}.type", schema.get("type", ""), "must be object")
    if level == "root":
        properties = schema.get("properties") or {}
        other = {name for name, value in schema.items() if value}
        if other & _STRUCTURE or {*properties} - {"name", "generateName"}:
            told = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            errors.forbidden(path, told)


_STRUCTURE = {
    "title", "description", "nullable", "items", "additionalProperties", PRESERVE, EMBEDDED, INT_OR_STRING, LIST_TYPE,
    LIST_KEYS, MAP_TYPE, RULES, "required", "minProperties", "maxProperties", "enum", "allOf", "anyOf", "oneOf", "not",
    "pattern", "format",
}  # fmt: skip


def _value_rules(errors: ErrorList, schema: Schema, path: str) -> None:
    """What value validation may say."""
    all_of, any_of = schema.get("allOf") or [], schema.get("anyOf") or []
    int_or_string = any_of == _INT_OR_STRING_TYPES
    first = bool(all_of) and all_of[0].get("anyOf") == _INT_OR_STRING_TYPES
    for index, each in enumerate(any_of):
        if not int_or_string:
            _nested(errors, each, f"{path}.anyOf[{index}]")
    for index, each in enumerate(all_of):
        inner = {name: value for name, value in each.items() if name != "anyOf"} if first and index == 0 else each
        _nested(errors, inner, f"{path}.allOf[{index}]")
    for index, each in enumerate(schema.get("oneOf") or ()):
        _nested(errors, each, f"{path}.oneOf[{index}]")
    if isinstance(schema.get("not"), dict):
        _nested(errors, schema["not"], f"{path}.not")
    if schema.get("pattern"):
        try:
            compile_pattern(schema["pattern"])
        except PatternError as error:
            told = f"must be a valid regular expression, but isn't: {error}"
            errors.invalid(f"{path}.pattern", schema["pattern"], told)


_FORBIDDEN_IN_VALUES = (
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    (PRESERVE, "must be false to be structural"),
    (EMBEDDED, "must be false to be structural"),
    (INT_OR_STRING, "must be false to be structural"),
    (LIST_KEYS, "must be empty to be structural"),
    (LIST_TYPE, "must be undefined to be structural"),
    (MAP_TYPE, "must be undefined to be structural"),
    (RULES, "must be empty to be structural"),
)


def _nested(errors: ErrorList, schema: Schema, path: str) -> None:
    _value_rules(errors, schema, path)
    if isinstance(schema.get("items"), dict):
        _nested(errors, schema["items"], f"{path}.items")
    for name, each in (schema.get("properties") or {}).items():
        _nested(errors, each, f"{path}.properties[{name}]")
    for name, told in _FORBIDDEN_IN_VALUES:
        if schema.get(name) or (name == "default" and schema.get(name) is not None):
            errors.forbidden(f"{path}.{name}", told)
    if "metadata" in (schema.get("properties") or {}):
        errors.forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _complete(errors: ErrorList, nested: Schema, schema: Schema, path: str, at: str) -> None:
    """Every field and list in the root's value validation is specified by the structure as well."""
    items, ours = nested.get("items"), schema.get("items")
    if isinstance(items, dict):
        if ours is None:
            errors.required(f"{path}.items", f"because it is defined in {at}.items")
        else:
            _complete(errors, items, ours, f"{path}.items", f"{at}.items")
    properties = schema.get("properties") or {}
    for name, each in (nested.get("properties") or {}).items():
        if name not in properties:
            errors.required(f"{path}.properties[{name}]", f"because it is defined in {at}.properties[{name}]")
        else:
            _complete(errors, each, properties[name], f"{path}.properties[{name}]", f"{at}.properties[{name}]")
    for part in ("allOf", "anyOf", "oneOf"):
        for index, each in enumerate(nested.get(part) or ()):
            _complete(errors, each, schema, path, f"{at}.{part}[{index}]")
    if isinstance(nested.get("not"), dict):
        _complete(errors, nested["not"], schema, path, f"{at}.not")


# --- defaults ---------------------------------------------------------------------------------------------------------


def _defaults(errors: ErrorList, schema: Schema, path: str, *, root: bool = False, in_metadata: bool = False) -> None:
    """Defaults have known fields only, and are valid."""
    default = schema.get("default")
    if default is not None and not in_metadata:
        where = f"{path}.default"
        try:
            pruned, _ = pruned_value(default, schema)
        except MetadataError as error:
            errors.invalid(f"{where}.{error.path}", error.value, str(error))
            return
        if not same(pruned, default):
            errors.invalid(where, default, "must not have unknown fields")
        found = ErrorList()
        check_embedded(found, default, schema, where)
        if not found:
            validate(found, default, schema, path=where)
        if not found and any(each.get(RULES) for _, each in walk(schema)):
            _obey_rules(found, default, schema, where, root=root)
        errors.extend(found)
    if isinstance(schema.get("items"), dict):
        _defaults(errors, schema["items"], f"{path}.items", in_metadata=in_metadata)
    embedded = root or bool(schema.get(EMBEDDED))
    for name, each in (schema.get("properties") or {}).items():
        inside = in_metadata or (embedded and name in META)
        _defaults(errors, each, f"{path}.properties[{name}]", in_metadata=inside)


def _obey_rules(errors: ErrorList, default: Any, schema: Schema, path: str, *, root: bool) -> None:
    from kubeloop.devcluster.apiextensions.cel_rules import Findings, Ratchet, RuleTree  # see _compile_rules()

    found = Findings()
    tree = RuleTree(schema, root=root or bool(schema.get(EMBEDDED)))
    tree.check(found, default, default, path, Ratchet(None))
    errors.extend(found.errors)


# --- OpenAPI ----------------------------------------------------------------------------------------------------------


_NOT_SUPPORTED = (
    ("id", "id is not supported"),
    ("additionalItems", "additionalItems is not supported"),
    ("patternProperties", "patternProperties is not supported"),
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
    ("$ref", "$ref is not supported"),
)


def _openapi(
    errors: ErrorList,
    schema: Schema,
    path: str,
    *,
    root: bool = False,
    no_defaults: str = "",
    in_metadata: bool = False,
) -> None:
    """`no_defaults`: why there may be none here, "" if there may."""
    type_, items = schema.get("type") or "", schema.get("items")
    if type_ and type_ not in _TYPES:
        errors.not_supported(f"{path}.type", type_, _TYPES)
    if schema.get("default") is not None and no_defaults:
        errors.forbidden(f"{path}.default", f"must not be set {no_defaults}")
    for name, told in _NOT_SUPPORTED:
        if schema.get(name):
            errors.forbidden(f"{path}.{name}", told)
    if type_ == "null":
        errors.forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(items, list):
        errors.forbidden(f"{path}.items", "items must be a schema object and not an array")
    if in_metadata and schema.get(EMBEDDED):
        errors.forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        told = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.forbidden(f"{path}.uniqueItems", told)
    more, properties = schema.get("additionalProperties"), schema.get("properties") or {}
    if more is not None and properties and more is not True:
        told = "additionalProperties and properties are mutual exclusive"
        errors.forbidden(f"{path}.additionalProperties", told)
    below: list[tuple[Any, str]] = [(schema.get("not"), "not"), (items, "items")]
    for part in ("allOf", "oneOf", "anyOf"):
        below += [(each, f"{part}[{index}]") for index, each in enumerate(schema.get(part) or ())]
    for each, place in below:
        if isinstance(each, dict):
            _openapi(errors, each, f"{path}.{place}", no_defaults=no_defaults, in_metadata=in_metadata)
    if isinstance(more, dict):
        why = "inside additionalProperties applying to object metadata" if in_metadata else no_defaults
        _openapi(errors, more, f"{path}.additionalProperties", no_defaults=why, in_metadata=in_metadata)
    for name, each in properties.items():
        meta = name in META and (root or bool(schema.get(EMBEDDED)))
        why = f"in top-level {name}" if meta and root else no_defaults
        _openapi(errors, each, f"{path}.properties[{name}]", no_defaults=why, in_metadata=in_metadata or meta)
    _extensions(errors, schema, path)


def _extensions(errors: ErrorList, schema: Schema, path: str) -> None:
    if schema.get(PRESERVE) is False:
        errors.invalid(f"{path}.{PRESERVE}", False, "must be true or undefined")
    map_type, list_type = schema.get(MAP_TYPE), schema.get(LIST_TYPE)
    if map_type is not None:
        _needs_type(errors, schema, "object", MAP_TYPE, path)
        if map_type not in ("atomic", "granular"):
            errors.not_supported(f"{path}.{MAP_TYPE}", map_type, ("atomic", "granular"))
    items = schema.get("items") if isinstance(schema.get("items"), dict) else None
    if list_type is not None and not _needs_type(errors, schema, "array", LIST_TYPE, path) and list_type == "set":
        told = f"must be atomic as item of a list with {LIST_TYPE}=set"
        if items and items.get("type") == "array" and items.get(LIST_TYPE) not in (None, "atomic"):
            errors.invalid(f"{path}.items.{LIST_TYPE}", items[LIST_TYPE], told)
        elif items and items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
            errors.invalid(f"{path}.items.{MAP_TYPE}", items.get(LIST_TYPE), told)
    if list_type is not None and list_type not in ("atomic", "set", "map"):
        errors.not_supported(f"{path}.{LIST_TYPE}", list_type, ("atomic", "set", "map"))
    keys = schema.get(LIST_KEYS) or []
    if keys and list_type != "map":
        told = f"must be map if {LIST_KEYS} is non-empty"
        if list_type is None:
            errors.required(f"{path}.{LIST_TYPE}", told)
        else:
            errors.invalid(f"{path}.{LIST_TYPE}", list_type, told)
    if list_type == "map":
        _keyed_list(errors, schema, keys, items, path)
    if list_type in ("set", "map") and items is not None:
        if items.get("nullable"):
            errors.forbidden(f"{path}.items.nullable", f"cannot be nullable when {LIST_TYPE} is {list_type}")
        if list_type == "map":
            _key_properties(errors, keys, items, path)
    for index, rule in enumerate(schema.get(RULES) or ()):
        _rule(errors, schema, rule, f"{path}.{RULES}[{index}]")


def _needs_type(errors: ErrorList, schema: Schema, type_: str, extension: str, path: str) -> bool:
    """Tell if the schema is of another type than its extension needs."""
    given = schema.get("type") or ""
    if given == type_:
        return False
    told = f"must be {type_} if {extension} is specified"
    if given:
        errors.invalid(f"{path}.type", given, told)
    else:
        errors.required(f"{path}.type", told)
    return True


def _keyed_list(errors: ErrorList, schema: Schema, keys: list[str], items: Schema | None, path: str) -> None:
    if not keys:
        errors.required(f"{path}.{LIST_KEYS}", f"must not be empty if {LIST_TYPE} is map")
    if items is None:
        if schema.get("items") is None:
            errors.required(f"{path}.items", f"must have a schema if {LIST_TYPE} is map")
        return
    if items.get("type") != "object":
        told = f"must be object if parent array's {LIST_TYPE} is map"
        errors.invalid(f"{path}.items.type", items.get("type", ""), told)
        return
    properties = items.get("properties") or {}
    for index, key in enumerate(keys):
        if key not in properties:
            errors.invalid(f"{path}.{LIST_KEYS}", keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            told = f"must be a scalar type if parent array's {LIST_TYPE} is map"
            errors.invalid(f"{path}.items.properties[{key}].type", items["type"], told)
        if key in keys[:index]:
            errors.invalid(f"{path}.{LIST_KEYS}", keys, "must not contain duplicate entries")


def _key_properties(errors: ErrorList, keys: list[str], items: Schema, path: str) -> None:
    properties, required = items.get("properties") or {}, items.get("required") or ()
    for key in keys:
        if key not in properties:
            continue
        where = f"{path}.items.properties[{key}]"
        if key not in required and properties[key].get("default") is None:
            told = f"this property is in {LIST_KEYS}, so it must have a default or be a required property"
            errors.required(f"{where}.default", told)
        if properties[key].get("nullable"):
            errors.forbidden(f"{where}.nullable", f"this property is in {LIST_KEYS}, so it cannot be nullable")


def _rule(errors: ErrorList, schema: Schema, rule: JSON, path: str) -> None:
    """A rule as text; _compile_rules() does the rest."""
    text, message = rule.get("rule") or "", rule.get("message") or ""
    if not text.strip():
        errors.required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        errors.invalid(f"{path}.message", message, "must be non-empty if specified")
    elif _has_newlines(message.strip()):
        errors.invalid(f"{path}.message", message, "must not contain line breaks")
    elif _has_newlines(text.strip()) and not message.strip():
        errors.required(f"{path}.message", "message must be specified if rule contains line breaks")
    expression, field = rule.get("messageExpression") or "", rule.get("fieldPath") or ""
    if expression and not expression.strip():
        errors.required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    if rule.get("reason") and rule["reason"] not in _REASONS:
        errors.not_supported(f"{path}.reason", rule["reason"], _REASONS)
    if field and not field.strip():
        errors.invalid(f"{path}.fieldPath", field, "must be non-empty if specified")
    if _has_newlines(field):
        errors.invalid(f"{path}.fieldPath", field, "must not contain line breaks")
    if field and not _leads_somewhere(field, schema):
        errors.invalid(f"{path}.fieldPath", field, "must be a valid path")


def _leads_somewhere(path: str, schema: Schema) -> bool:
    from kubeloop.devcluster.apiextensions.cel_rules import WrongPath, parse_field_path  # see _compile_rules()

    try:
        parse_field_path(path, schema)
    except WrongPath:
        return False
    return True


def _has_newlines(text: str) -> bool:
    return "\n" in text or "\r" in text
