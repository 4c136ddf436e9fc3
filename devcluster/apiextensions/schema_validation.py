"""Validation of the OpenAPI v3 schemas in definitions: they must be structural, with valid defaults.

Causes have the texts of kube-apiserver. Where Go iterates over maps in random order, causes here follow the schema.
Sources: apiextensions-apiserver pkg/apiserver/schema/validation.go, pkg/apiserver/schema/defaulting/validation.go and
pkg/apis/apiextensions/validation/validation.go.
"""

from __future__ import annotations

from typing import Any

from kubeloop.cel.regex import PatternError, compile_pattern
from kubeloop.devcluster.apiextensions.rule_field_path import field_path
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
_LOGICAL = ("allOf", "anyOf", "oneOf", "not")
_INT_OR_STRING_TYPES = [{"type": "integer"}, {"type": "string"}]
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


def check_schema(errors: ErrorList, schema: Schema, path: str, *, has_status: bool) -> None:
    """Validate one version's schema; `path` is the field that contains openAPIV3Schema."""
    schema_path = f"{path}.openAPIV3Schema"
    if has_status:
        _check_root_with_status(errors, schema, schema_path)
    if schema.get("nullable"):
        errors.forbidden(f"{schema_path}.nullable", "nullable cannot be true at the root")
    unsupported = _unsupported(schema)
    causes = ErrorList()
    if not unsupported:
        _check_structural(causes, schema, "root", schema_path)
        _check_completeness(
            causes, {name: schema[name] for name in _LOGICAL if name in schema}, schema, schema_path, schema_path
        )
        causes.sort(key=lambda cause: f"{cause['field']}: {cause['message']}")
        if not causes:
            _check_defaults(causes, schema, schema_path, root=True)
    errors.extend(causes)
    first_openapi_error = len(errors)
    _check_openapi(errors, schema, schema_path, root=True)
    if not unsupported and not causes and any(subschema.get(RULES) for _, subschema in walk(schema)):
        _compile_rules(errors, [cause["field"] for cause in errors[first_openapi_error:]], schema, schema_path)
    if unsupported and not errors:
        errors.invalid(schema_path, "", unsupported)


def _check_root_with_status(errors: ErrorList, schema: Schema, path: str) -> None:
    """Allow only the fields that remain if the schema of the status is removed."""
    if schema.get("type") not in (None, "", "object"):
        message = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        errors.invalid(f"{path}.type", schema["type"], message)
    elif forbidden_fields := [name for name in schema if name not in _ALLOWED_AT_ROOT and schema[name]]:
        allowed = " ".join(_ALLOWED_AT_ROOT.values())
        message = f"only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
        errors.invalid(path, {name: schema[name] for name in forbidden_fields}, message)


def _unsupported(schema: Schema) -> str:
    """Return the error for a schema that cannot be read as a structural schema, "" if it can."""
    for name in _UNSUPPORTED:
        if schema.get(name):
            return f"OpenAPIV3Schema '{name.lstrip('$') if name == '$schema' else name}' is not supported"
    if isinstance(schema.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    if schema.get(PRESERVE) is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    subschemas = [*(schema.get("properties") or {}).values()]
    subschemas += [
        schema[name] for name in ("items", "not", "additionalProperties") if isinstance(schema.get(name), dict)
    ]
    subschemas += [subschema for name in ("allOf", "anyOf", "oneOf") for subschema in schema.get(name) or ()]
    return next((message for subschema in subschemas if (message := _unsupported(subschema))), "")


def _compile_rules(errors: ErrorList, invalid_paths: list[str], schema: Schema, schema_path: str) -> None:
    """Compile the rules of schemas without a cause at or below them. `invalid_paths`: paths of all causes."""
    from kubeloop.devcluster.apiextensions.cel_rules import Costs, check_rules  # loaded for schemas with rules

    costs = Costs()

    def visit(node: Schema, path: str, max_evaluations: int | None, uncorrelatable: str, *, root: bool) -> None:
        properties, items = node.get("properties") or {}, node.get("items")
        additional = node.get("additionalProperties")
        child_evaluations = max_evaluations
        if node.get("type") == "array" or (node.get("type") == "object" and additional is not None):
            limit = node.get("maxItems" if node["type"] == "array" else "maxProperties")
            child_evaluations = None if limit is None or max_evaluations is None else max_evaluations * max(0, limit)
        if isinstance(additional, dict):
            visit(additional, f"{path}.additionalProperties", child_evaluations, uncorrelatable, root=False)
        for name, subschema in properties.items():
            # values of granular and of atomic maps are correlated with old values by their keys
            visit(subschema, f"{path}.properties[{name}]", child_evaluations, uncorrelatable, root=False)
        if isinstance(items, dict):
            items_uncorrelatable = uncorrelatable or (path if node.get(LIST_TYPE) != "map" else "")
            visit(items, f"{path}.items", child_evaluations, items_uncorrelatable, root=False)
        if node.get(RULES) and not any(
            invalid == path or invalid.startswith((f"{path}.", f"{path}[")) for invalid in invalid_paths
        ):
            embedded = root or bool(node.get(EMBEDDED))
            check_rules(
                errors,
                node,
                f"{path}.{RULES}",
                root=embedded,
                max_evaluations=max_evaluations,
                uncorrelatable=uncorrelatable,
                costs=costs,
            )

    visit(schema, schema_path, 1, "", root=True)
    costs.check(errors, schema_path)


# --- structure --------------------------------------------------------------------------------------------------------


_EMPTY_TYPES = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


def _check_structural(errors: ErrorList, schema: Schema, level: str, path: str) -> None:
    type_, items = schema.get("type") or "", schema.get("items")
    properties = schema.get("properties") or {}
    if type_ == "array" and items is None:
        errors.required(f"{path}.items", "must be specified")
    if isinstance(items, dict):
        _check_structural(errors, items, "item", f"{path}.items")
    for name, subschema in properties.items():
        _check_structural(errors, subschema, "field", f"{path}.properties[{name}]")
    additional = schema.get("additionalProperties")
    if additional is not None:
        if level == "root":
            errors.forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if isinstance(additional, dict):
            _check_structural(errors, additional, "field", f"{path}.additionalProperties")
    if schema.get(INT_OR_STRING):
        for extension in (PRESERVE, EMBEDDED):
            if schema.get(extension):
                errors.invalid(f"{path}.{extension}", True, f"must be false if {INT_OR_STRING} is true")
    _check_value_validation(errors, schema, path)
    _check_structural_type(errors, schema, level, path)
    embedded, is_object_root = schema.get(EMBEDDED), level == "root" or bool(schema.get(EMBEDDED))
    if embedded and additional is not None:
        errors.forbidden(f"{path}.additionalProperties", f"must not be used if {EMBEDDED} is set")
    for name in ("kind", "apiVersion"):
        if is_object_root and name in properties and properties[name].get("type") != "string":
            errors.invalid(f"{path}.properties[{name}].type", properties[name].get("type", ""), "must be string")
    if "metadata" in properties:
        _check_metadata(errors, properties["metadata"], level, is_object_root, f"{path}.properties[metadata]")
    if embedded and not schema.get(PRESERVE) and not properties:
        message = f"must not be empty if {EMBEDDED} is true without {PRESERVE}"
        errors.required(f"{path}.properties", message)


def _check_structural_type(errors: ErrorList, schema: Schema, level: str, path: str) -> None:
    type_ = schema.get("type") or ""
    if schema.get(EMBEDDED) and type_ != "object":
        message = f"must be object if {EMBEDDED} is true"
        if type_:
            errors.invalid(f"{path}.type", type_, message)
        else:
            errors.required(f"{path}.type", message)
    elif not type_ and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        errors.required(f"{path}.type", _EMPTY_TYPES[level])
    if level == "root" and type_ and type_ != "object":
        errors.invalid(f"{path}.type", type_, "must be object at the root")


def _check_metadata(errors: ErrorList, schema: Schema, level: str, is_object_root: bool, path: str) -> None:
    if is_object_root and schema.get("type") != "object":
        errors.invalid(f"{path}.type", schema.get("type", ""), "must be object")
    if level == "root":
        properties = schema.get("properties") or {}
        fields = {name for name, value in schema.items() if value}
        if fields & _STRUCTURE or {*properties} - {"name", "generateName"}:
            message = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            errors.forbidden(path, message)


_STRUCTURE = {
    "title", "description", "nullable", "items", "additionalProperties", PRESERVE, EMBEDDED, INT_OR_STRING, LIST_TYPE,
    LIST_KEYS, MAP_TYPE, RULES, "required", "minProperties", "maxProperties", "enum", "allOf", "anyOf", "oneOf", "not",
    "pattern", "format",
}  # fmt: skip


def _check_value_validation(errors: ErrorList, schema: Schema, path: str) -> None:
    """Validate the part of a schema that may only restrict values."""
    all_of, any_of = schema.get("allOf") or [], schema.get("anyOf") or []
    int_or_string = any_of == _INT_OR_STRING_TYPES
    has_int_or_string = bool(all_of) and all_of[0].get("anyOf") == _INT_OR_STRING_TYPES
    for index, subschema in enumerate(any_of):
        if not int_or_string:
            _check_nested_value_validation(errors, subschema, f"{path}.anyOf[{index}]")
    for index, subschema in enumerate(all_of):
        inner = (
            {name: value for name, value in subschema.items() if name != "anyOf"}
            if has_int_or_string and index == 0
            else subschema
        )
        _check_nested_value_validation(errors, inner, f"{path}.allOf[{index}]")
    for index, subschema in enumerate(schema.get("oneOf") or ()):
        _check_nested_value_validation(errors, subschema, f"{path}.oneOf[{index}]")
    if isinstance(schema.get("not"), dict):
        _check_nested_value_validation(errors, schema["not"], f"{path}.not")
    if schema.get("pattern"):
        try:
            compile_pattern(schema["pattern"])
        except PatternError as error:
            message = f"must be a valid regular expression, but isn't: {error}"
            errors.invalid(f"{path}.pattern", schema["pattern"], message)


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


def _check_nested_value_validation(errors: ErrorList, schema: Schema, path: str) -> None:
    _check_value_validation(errors, schema, path)
    if isinstance(schema.get("items"), dict):
        _check_nested_value_validation(errors, schema["items"], f"{path}.items")
    for name, subschema in (schema.get("properties") or {}).items():
        _check_nested_value_validation(errors, subschema, f"{path}.properties[{name}]")
    for name, message in _FORBIDDEN_IN_VALUES:
        if schema.get(name) or (name == "default" and schema.get(name) is not None):
            errors.forbidden(f"{path}.{name}", message)
    if "metadata" in (schema.get("properties") or {}):
        errors.forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _check_completeness(errors: ErrorList, nested: Schema, schema: Schema, path: str, nested_path: str) -> None:
    """Require each field and list of the value validation in the structure as well."""
    items, structure = nested.get("items"), schema.get("items")
    if isinstance(items, dict):
        if structure is None:
            errors.required(f"{path}.items", f"because it is defined in {nested_path}.items")
        else:
            _check_completeness(errors, items, structure, f"{path}.items", f"{nested_path}.items")
    properties = schema.get("properties") or {}
    for name, subschema in (nested.get("properties") or {}).items():
        if name not in properties:
            errors.required(f"{path}.properties[{name}]", f"because it is defined in {nested_path}.properties[{name}]")
        else:
            _check_completeness(
                errors, subschema, properties[name], f"{path}.properties[{name}]", f"{nested_path}.properties[{name}]"
            )
    for part in ("allOf", "anyOf", "oneOf"):
        for index, subschema in enumerate(nested.get(part) or ()):
            _check_completeness(errors, subschema, schema, path, f"{nested_path}.{part}[{index}]")
    if isinstance(nested.get("not"), dict):
        _check_completeness(errors, nested["not"], schema, path, f"{nested_path}.not")


# --- defaults ---------------------------------------------------------------------------------------------------------


def _check_defaults(
    errors: ErrorList, schema: Schema, path: str, *, root: bool = False, in_metadata: bool = False
) -> None:
    """Validate the defaults: known fields only, and valid values."""
    default = schema.get("default")
    if default is not None and not in_metadata:
        default_path = f"{path}.default"
        try:
            pruned, _ = pruned_value(default, schema)
        except MetadataError as error:
            errors.invalid(f"{default_path}.{error.path}", error.value, str(error))
            return
        if not same(pruned, default):
            errors.invalid(default_path, default, "must not have unknown fields")
        causes = ErrorList()
        check_embedded(causes, default, schema, default_path)
        if not causes:
            validate(causes, default, schema, path=default_path)
        if not causes and any(subschema.get(RULES) for _, subschema in walk(schema)):
            _check_default_by_rules(causes, default, schema, default_path, root=root)
        errors.extend(causes)
    if isinstance(schema.get("items"), dict):
        _check_defaults(errors, schema["items"], f"{path}.items", in_metadata=in_metadata)
    embedded = root or bool(schema.get(EMBEDDED))
    for name, subschema in (schema.get("properties") or {}).items():
        inside = in_metadata or (embedded and name in META)
        _check_defaults(errors, subschema, f"{path}.properties[{name}]", in_metadata=inside)


def _check_default_by_rules(errors: ErrorList, default: Any, schema: Schema, path: str, *, root: bool) -> None:
    from kubeloop.devcluster.apiextensions.cel_rules import Ratchet, RuleEvaluation, RuleTree  # see _compile_rules()

    evaluation = RuleEvaluation()
    tree = RuleTree(schema, root=root or bool(schema.get(EMBEDDED)))
    tree.check(evaluation, default, default, path, Ratchet(None))
    errors.extend(evaluation.errors)


# --- OpenAPI ----------------------------------------------------------------------------------------------------------


_NOT_SUPPORTED = (
    ("id", "id is not supported"),
    ("additionalItems", "additionalItems is not supported"),
    ("patternProperties", "patternProperties is not supported"),
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
    ("$ref", "$ref is not supported"),
)


def _check_openapi(
    errors: ErrorList,
    schema: Schema,
    path: str,
    *,
    root: bool = False,
    no_defaults: str = "",
    in_metadata: bool = False,
) -> None:
    """Validate the OpenAPI v3 fields. `no_defaults`: the reason why no default is allowed here, "" if one is."""
    type_, items = schema.get("type") or "", schema.get("items")
    errors.one_of(f"{path}.type", type_ or None, _TYPES)
    if schema.get("default") is not None and no_defaults:
        errors.forbidden(f"{path}.default", f"must not be set {no_defaults}")
    for name, message in _NOT_SUPPORTED:
        if schema.get(name):
            errors.forbidden(f"{path}.{name}", message)
    if type_ == "null":
        errors.forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(items, list):
        errors.forbidden(f"{path}.items", "items must be a schema object and not an array")
    if in_metadata and schema.get(EMBEDDED):
        errors.forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        message = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.forbidden(f"{path}.uniqueItems", message)
    additional, properties = schema.get("additionalProperties"), schema.get("properties") or {}
    if additional is not None and properties and additional is not True:
        message = "additionalProperties and properties are mutual exclusive"
        errors.forbidden(f"{path}.additionalProperties", message)
    subschemas: list[tuple[Any, str]] = [(schema.get("not"), "not"), (items, "items")]
    for part in ("allOf", "oneOf", "anyOf"):
        subschemas += [(subschema, f"{part}[{index}]") for index, subschema in enumerate(schema.get(part) or ())]
    for subschema, name in subschemas:
        if isinstance(subschema, dict):
            _check_openapi(errors, subschema, f"{path}.{name}", no_defaults=no_defaults, in_metadata=in_metadata)
    if isinstance(additional, dict):
        reason = "inside additionalProperties applying to object metadata" if in_metadata else no_defaults
        _check_openapi(errors, additional, f"{path}.additionalProperties", no_defaults=reason, in_metadata=in_metadata)
    for name, subschema in properties.items():
        is_meta = name in META and (root or bool(schema.get(EMBEDDED)))
        reason = f"in top-level {name}" if is_meta and root else no_defaults
        _check_openapi(
            errors, subschema, f"{path}.properties[{name}]", no_defaults=reason, in_metadata=in_metadata or is_meta
        )
    _check_extensions(errors, schema, path)


def _check_extensions(errors: ErrorList, schema: Schema, path: str) -> None:
    if schema.get(PRESERVE) is False:
        errors.invalid(f"{path}.{PRESERVE}", False, "must be true or undefined")
    map_type, list_type = schema.get(MAP_TYPE), schema.get(LIST_TYPE)
    if map_type is not None:
        _has_wrong_type(errors, schema, "object", MAP_TYPE, path)
        errors.one_of(f"{path}.{MAP_TYPE}", map_type, ("atomic", "granular"))
    items = schema.get("items") if isinstance(schema.get("items"), dict) else None
    if list_type is not None and not _has_wrong_type(errors, schema, "array", LIST_TYPE, path) and list_type == "set":
        message = f"must be atomic as item of a list with {LIST_TYPE}=set"
        if items and items.get("type") == "array" and items.get(LIST_TYPE) not in (None, "atomic"):
            errors.invalid(f"{path}.items.{LIST_TYPE}", items[LIST_TYPE], message)
        elif items and items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
            errors.invalid(f"{path}.items.{MAP_TYPE}", items.get(LIST_TYPE), message)
    errors.one_of(f"{path}.{LIST_TYPE}", list_type, ("atomic", "set", "map"))
    keys = schema.get(LIST_KEYS) or []
    if keys and list_type != "map":
        message = f"must be map if {LIST_KEYS} is non-empty"
        if list_type is None:
            errors.required(f"{path}.{LIST_TYPE}", message)
        else:
            errors.invalid(f"{path}.{LIST_TYPE}", list_type, message)
    if list_type == "map":
        _check_map_list(errors, schema, keys, items, path)
    if list_type in ("set", "map") and items is not None:
        if items.get("nullable"):
            errors.forbidden(f"{path}.items.nullable", f"cannot be nullable when {LIST_TYPE} is {list_type}")
        if list_type == "map":
            _check_key_properties(errors, keys, items, path)
    for index, rule in enumerate(schema.get(RULES) or ()):
        _check_rule_text(errors, schema, rule, f"{path}.{RULES}[{index}]")


def _has_wrong_type(errors: ErrorList, schema: Schema, type_: str, extension: str, path: str) -> bool:
    """Return True, and add a cause, if the schema does not have the type that its extension needs."""
    actual = schema.get("type") or ""
    if actual == type_:
        return False
    message = f"must be {type_} if {extension} is specified"
    if actual:
        errors.invalid(f"{path}.type", actual, message)
    else:
        errors.required(f"{path}.type", message)
    return True


def _check_map_list(errors: ErrorList, schema: Schema, keys: list[str], items: Schema | None, path: str) -> None:
    errors.require(f"{path}.{LIST_KEYS}", keys, f"must not be empty if {LIST_TYPE} is map")
    if items is None:
        if schema.get("items") is None:
            errors.required(f"{path}.items", f"must have a schema if {LIST_TYPE} is map")
        return
    if items.get("type") != "object":
        message = f"must be object if parent array's {LIST_TYPE} is map"
        errors.invalid(f"{path}.items.type", items.get("type", ""), message)
        return
    properties = items.get("properties") or {}
    for index, key in enumerate(keys):
        if key not in properties:
            errors.invalid(f"{path}.{LIST_KEYS}", keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            message = f"must be a scalar type if parent array's {LIST_TYPE} is map"
            errors.invalid(f"{path}.items.properties[{key}].type", items["type"], message)
        if key in keys[:index]:
            errors.invalid(f"{path}.{LIST_KEYS}", keys, "must not contain duplicate entries")


def _check_key_properties(errors: ErrorList, keys: list[str], items: Schema, path: str) -> None:
    properties, required = items.get("properties") or {}, items.get("required") or ()
    for key in keys:
        if key not in properties:
            continue
        property_path = f"{path}.items.properties[{key}]"
        if key not in required and properties[key].get("default") is None:
            message = f"this property is in {LIST_KEYS}, so it must have a default or be a required property"
            errors.required(f"{property_path}.default", message)
        if properties[key].get("nullable"):
            errors.forbidden(f"{property_path}.nullable", f"this property is in {LIST_KEYS}, so it cannot be nullable")


def _check_rule_text(errors: ErrorList, schema: Schema, rule: JSON, path: str) -> None:
    """Validate the fields of a rule without compiling it, which _compile_rules() does."""
    text, message = rule.get("rule") or "", rule.get("message") or ""
    if not text.strip():
        errors.required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        errors.invalid(f"{path}.message", message, "must be non-empty if specified")
    elif _has_newlines(message.strip()):
        errors.invalid(f"{path}.message", message, "must not contain line breaks")
    elif _has_newlines(text.strip()) and not message.strip():
        errors.required(f"{path}.message", "message must be specified if rule contains line breaks")
    message_expression, field = rule.get("messageExpression") or "", rule.get("fieldPath") or ""
    if message_expression and not message_expression.strip():
        errors.required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    errors.one_of(f"{path}.reason", rule.get("reason") or None, _REASONS)
    if field and not field.strip():
        errors.invalid(f"{path}.fieldPath", field, "must be non-empty if specified")
    if _has_newlines(field):
        errors.invalid(f"{path}.fieldPath", field, "must not contain line breaks")
    if field and field_path(field, schema) is None:
        errors.invalid(f"{path}.fieldPath", field, "must be a valid path")


def _has_newlines(text: str) -> bool:
    return "\n" in text or "\r" in text
