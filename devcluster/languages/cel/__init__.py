"""CEL, the Common Expression Language, as kube-apiserver v1.36 has it.

Imported by those alone who have an expression to compile: rules of custom resources, stages, admission policies. An
expression is parsed, its macros are expanded, it is checked against declared types and becomes closures:

    text --lexer, parser, macros--> nodes --checker--> typed nodes --program--> Program.run(variables)

    lexer.py         tokens, and what literals stand for
    syntax.py        the nodes of an expression, and the errors in one
    parser.py        tokens to nodes
    macros.py        has(), all(), map(), ... as the comprehensions that they are
    types.py         types, which of them fit which, and types by OpenAPI schemas
    declarations.py  every function with its overloads
    checker.py       which type each node has, and which overloads a call means
    literals.py      what is looked at after that: literals of times, patterns and formats
    costs.py         what calls cost, by the values that they were given
    estimates.py     what an expression costs at most, before it has been run
    program.py       nodes to closures
    closures.py      the closures, which count what they cost
    values.py        values that Python has no type for; equality, order, conversion, arithmetic
    objects.py       JSON seen through an OpenAPI schema
    functions.py     the standard functions
    texts.py         functions of texts, and format()
    lists.py         functions of lists and sets
    kubernetes.py    Kubernetes' functions: URLs, addresses, quantities, versions, formats

May import devcluster.custom.formats and patterns, devcluster.validation.field and kube. Source: cel-go v0.26 and
k8s.io/apiserver/pkg/cel of Kubernetes v1.36.
"""
