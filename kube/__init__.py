"""Kubernetes vocabulary: API objects, quantities, selectors, the API client, credentials, the event recorder.

Layers, each importing only from lines below its own:

    auth | events             credentials and connections; Kubernetes Events
    client                    requests, transports, retries, rate limit, discovery
    selectors                 selectors of labels, fields, nodes and devices; affinity terms
    errors                    ApiError and its subclasses
    objects                   API types as msgspec Structs, resources, QoS class, tolerations
    policy_cel                CEL environment of admission policies
    cel_library               CEL functions that Kubernetes adds
    class_loading | feature_gates | values
                              classes by name; feature gates; quantities, durations, times, cron schedules
    user_error | validation   UserError; names, formats of strings, errors of a field
    allocator | clock | json_object | metric_families | schema | shared_buffer | uids | yaml

May import `kubeloop.cel` only.
"""
