"""Views of traces, in layers; each module imports only modules of lines below its own:

    pod_feed                     changed pods, for the browser page and `kubeloop trace --watch`
    browser_page                 page at /traces, served as files or as one self-contained file
    waterfall, rollout_view      terminal views of one trace and of a rollout
    perfetto, otlp_json          Chrome trace events; OTLP as JSON, written and read
    rollout, feed_response       percentiles per phase of many pods; JSON response of the feed
    pod_lines                    one pod as a line of phases over time
    phases, span_titles
    columns, time_format

All but `pod_feed` work on trace documents (`Trace.document`), so that a trace from a file looks the same as one from
the running process. May import rich, msgspec, `kubeloop.kube`, `kubeloop.informers` and other folders of `tracing`.
"""
