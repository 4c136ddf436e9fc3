"""The fault suite: scenarios on the real client, informers and API server, with faults drawn from a seed.

    scenario, scenarios/     what users do
    fault_plan               which faults are drawn
    cluster                  the API server, simulated nodes and users, without faults
    network                  connections of the processes, with the faults
    control_process          one process with a control plane: starts, is killed, leaves its journal
    invariants               checks of each write
    desired_state            the final state
    final_state              its comparison with a run that postpones no write
    simulation               one run
    campaign, __main__       many runs: table, shrinking, replay

docs/reliability.md describes the model and the invariants.
"""
