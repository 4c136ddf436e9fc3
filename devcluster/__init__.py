"""The development cluster: API server, storage, admission, simulated nodes.

May import `kubeloop.kube` and `kubeloop.cel` only: a server does not depend on the clients it serves. Its packages are
layers; each one imports only those below it (pyproject.toml, contract "devcluster"). The strategies in `kinds` use what
is below them; what is below finds a strategy by the kind's name (api.strategy) and imports nothing of `kinds`:

    server           API server, HTTP, TLS, health, metrics, start-up objects
    aggregation      requests for aggregated API servers
    kinds            behaviour of each kind: its strategy
    apiextensions    CustomResourceDefinitions and their objects
    handlers         verbs of the REST API and subresources
    kubelet          simulated nodes and pods, KWOK stages
    controllers      controllers that the cluster runs itself
    simulation       timers, events and Node objects
    admission        admission plugins and policies
    printers         Tables
    audit            audit policies, events of requests
    registry         steps of a write that all kinds share
    authorization    permissions of users, access reviews, impersonation
    authentication   users of requests
    openapi          OpenAPI and discovery
    validation       validation and warnings, except those of one kind
    managedfields    field ownership, server-side apply
    outgoing         calls of webhooks and other API servers
    storage          versioned store, watch, SQLite
    serializer       JSON, YAML, protobuf, defaults, conversion
    languages        Go templates, jq, JSONPath, values of mutation expressions
    api              strategies, served resources, requests, errors
"""
