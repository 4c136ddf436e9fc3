"""Controllers under faults, in virtual time: crashes, stale and old lists, missed events, refused and lost requests.

docs/controllers.md shows its use:

    def test_sites_survive_every_fault():
        faults.check([Sites], [faults.apply(CRD, site(replicas=1)), faults.delete("site/blog")])

    suite.py              check, and the steps of a scenario
    run.py                processes of a run
    control_process.py    one process: starts, is killed
    network.py            connections of the processes, with the faults
    fault_plan.py         which faults are drawn
    cluster.py            the API server of a run, its story and violations
    state.py              the end of a run, compared with that of another
    sentences.py          faults in words
    requests.py           requests that pass the network
"""

from kubeloop.testing.faults.suite import CheckSummary, FaultCluster, FaultsFound, UserStep, apply, check, delete

__all__ = ["CheckSummary", "FaultCluster", "FaultsFound", "UserStep", "apply", "check", "delete"]
