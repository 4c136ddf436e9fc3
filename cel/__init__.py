"""CEL, the Common Expression Language, as in kube-apiserver v1.36.

A library: imports nothing of kubeloop. Functions that need more, such as those of quantities, are passed to a
CelProgram as a `Library`; kube/cel_library.py has those of the API server. Compilation: the text is parsed, macros are
expanded, types are checked, and nodes become closures:

    text --lexer, parser, macros--> nodes --checker--> typed nodes --program--> CelProgram.run(variables)

    lexer.py           tokens, and values of literals
    syntax.py          nodes of the syntax tree, and compile errors
    parser.py          tokens to nodes
    macros.py          expansion of has(), all(), map(), ... to comprehensions
    types.py           types, assignability, and types of OpenAPI schemas
    declarations.py    overloads of every function
    checker.py         types of nodes, and overloads of calls
    validators.py      checks after the type checker: literal times, patterns and formats
    program.py         nodes to closures; the cost limit of one evaluation (PER_CALL_LIMIT)
    closures.py        the closures, which count their cost
    costs/             cost of calls by argument values; maximum cost of an expression, before it runs
    values.py          values without a Python type; equality, ordering, conversion, arithmetic
    schema_values.py   values of JSON data with an OpenAPI schema
    functions/         functions: standard ones, of strings, of lists and sets
    regex.py           Go regular expressions, matched by RE2
    go_text.py         quoted strings and integers as in Go

Limits for the rules of one custom resource (per rule, per schema, per request) are in
devcluster/apiextensions/cel_rules.py.
Source: cel-go v0.26 and k8s.io/apiserver/pkg/cel of Kubernetes v1.36.
"""
