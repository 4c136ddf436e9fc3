"""Custom resources: the API that CustomResourceDefinitions add to the development cluster's API server.

A server has one `Definitions`, which watches the definitions in its store: it accepts their names, establishes and
serves them, and deletes the objects of a deleted definition. Each served version has a `ServedVersion` with the rules
of its kind; the rest of the server uses it as a `ServedResource` whose `crd_version` is that version. Two servers in
one process share nothing of it. May import `devcluster`, `kube` and `cel`. Source: apiextensions-apiserver of
Kubernetes v1.36.

    definitions.py            conditions, names, serving and finalization of definitions
    served_version.py         rules of one served version: decoding, conversion, validation, scale, columns
    conversion_webhook.py     conversion webhooks
    structural_schema.py      structural schemas applied to objects: pruning, defaults, embedded objects, unique items
    value_validation.py       validation of values by OpenAPI v3 schemas, with ratcheting
    cel_rules.py              x-kubernetes-validations: CEL rules, compiled and evaluated
    rule_field_path.py        the fieldPath of a rule
    value_types.py            granular and atomic values of a schema, for managedFields and server-side apply
    custom_scale.py           the subresource scale
    openapi_documents.py      discovery and OpenAPI documents
    definition_validation.py  validation of definitions, on create and on update
    schema_validation.py      validation of the schemas in definitions
"""
