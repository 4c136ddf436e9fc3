"""The command line.

Commands; the module of one is imported when it runs

    main.py                    commands
    options/                   their options, each declared once, and what they set
    help_screens.py            --help and --help-all, suggestions for unknown commands

    up.py                      kubeloop up: start of its cluster
    up_session.py              its control plane, manifests and output
    progress_table.py          its table of progress
    apiserver.py               kubeloop apiserver
    run.py                     kubeloop run
    observe.py                 kubeloop observe
    recording/                 kubeloop record, kubeloop plan
    replay/                    kubeloop replay
    trace/                     kubeloop trace
    top/                       kubeloop top
    explain/                   kubeloop explain
    nodes.py                   kubeloop nodes
    envtest.py                 kubeloop envtest
    completion/                kubeloop completion
    kubeconfig.py              kubeloop kubeconfig
    manifests.py               kubeloop manifests
    operator_faults.py         kubeloop test-operator

Parts of several commands

    terminal.py                width of the output
    targets.py                 KIND/NAME, for trace and explain
    endpoint_client.py         client of a running process, for trace, top and explain
    process_endpoint.py        the endpoint of a process, for run and observe
    replica_election.py        leader election, for run and observe
"""
