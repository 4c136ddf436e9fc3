"""Custom resources: what CustomResourceDefinitions make the development cluster serve.

A server holds one `Definitions`, which follows the definitions in its store: it accepts their names, establishes and
serves them, and removes what they leave behind. For each served version there is a `Version` with the rules of its
kind; everywhere else a custom resource is a `ServedResource` like any other, whose `crd_version` is that version.
Other servers in the same process know nothing of it. May import `kubeloop.devcluster` and `kubeloop.kube` only. Source:
apiextensions-apiserver of Kubernetes v1.36.

    definitions.py       which definitions there are: conditions, names, serving, finalization
    version.py           the rules of one served version, as the rest of the server asks for them
    webhook.py           conversion webhooks
    structural.py        schemas at work: pruning, defaults, embedded objects, unique items
    values.py            validation of values by OpenAPI v3 schemas, with what stays valid because it has not changed
    formats.py           formats of strings
    patterns.py          Go's regular expressions, ready to be looked for
    go_patterns.py       how Go reads them, and what they are in Python's language
    unicode_classes.py   the sets of characters in them (unicode.json is written by generate_unicode.py)
    automata.py          those that Python could take very long over
    rules.py             x-kubernetes-validations: rules in CEL, compiled and run
    ownership.py         managedFields and server-side apply by schemas
    jsonpath.py          paths of printer columns, selectable fields and scales
    documents.py         discovery and OpenAPI documents
    definition_rules.py  what a definition must be, and how it may change
    schema_rules.py      what its schemas must be
"""
