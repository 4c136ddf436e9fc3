"""The fault suite: scenarios on the real client, informers and API server, with faults drawn from a seed.

    scenario, scenarios/     what users do
    cluster                  the API server, simulated nodes and users, without faults
    invariants               checks of each write
    desired_state            the final state
    final_state              its comparison with a run that postpones no write
    simulation               one run
    campaign, __main__       many runs: table, shrinking, replay

Faults, network and processes are those of `kubeloop.testing.faults`. docs/reliability.md describes the model and the
invariants.
"""
