"""Kubernetes vocabulary: API objects, quantities, selectors, the API client, credentials, the event recorder.

Layers, each importing only from lines below its own:

    auth | event_recorder                    credentials and connections; Kubernetes Events
    event_aggregation                        event correlation: spam filter, aggregation, counting
    client                                   requests, transports, retries, rate limit, discovery
    node_selectors | pod_affinity            selectors in affinity terms
    cron_schedule                            schedules of CronJobs
    durations | feature_gates | selectors    Go durations; feature gates; label and field selectors
    errors                                   ApiError and its subclasses, UserError
    objects                                  API types as msgspec Structs, resources, QoS class, tolerations
    device_selectors | policy_cel            CEL selectors of devices; CEL environment of admission policies
    cel_library                              CEL functions that Kubernetes adds
    field_errors | name_checks | string_formats | ip_addresses
    quantities | times | clock | uids | yaml | json_object | schema
    allocator | shared_buffer                memory of the C library; buffers of connections
    integers                                 integers in texts of users

May import `kubeloop.cel` only.
"""
