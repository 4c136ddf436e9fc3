"""An operator of any language under faults: an external process, with an API server that injects them.

docs/operator-faults.md describes it; `kubeloop test-operator` and the fixture `kubeloop_check_operator` use it.

    suite.py          the reference runs, the runs with faults, and their findings
    fixture.py        check, for pytest
    report.py         the report as text, JSON and JUnit XML
    run.py            one run
    scenario.py       manifests and steps of users
    operator_api.py   requests of the operator's clients, and the fault
    process.py        the operator's processes
    ports.py          their ports
    outside.py        its connections to other servers
"""
