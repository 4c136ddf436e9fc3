"""The command line.

Commands; the module of one is imported when it runs

    main.py                    commands
    options.py                 their options, each declared once

    up.py                      kubeloop up
    progress_table.py          its table of progress
    apiserver.py               kubeloop apiserver
    run.py                     kubeloop run
    observe.py                 kubeloop observe
    trace.py                   kubeloop trace
    trace_sources.py           running process or file from which it reads
    trace_watch.py             its option --watch
    explain.py                 kubeloop explain
    explain_cluster.py         its connection to a cluster with another scheduler
    nodes.py                   kubeloop nodes

Parts of several commands

    terminal.py                width of the output
    targets.py                 KIND/NAME, for trace and explain
    endpoint_client.py         client of a running process, for trace and explain
    process_endpoint.py        the endpoint of a process, for run and observe
    journal_option.py          option --trace-journal, for run and observe
    replica_election.py        leader election, for run and observe
    control_plane_settings.py  settings from options, for run and up
    scheduler_options.py       configuration of the scheduler, for run, up and explain
    gate_warnings.py           warnings about feature gates
"""
