"""Options of the commands, and what they set.

Modules

    options.py                 options, each declared once
    recording_options.py       options of record and plan
    replay_options.py          options of replay
    operator_fault_options.py  options of test-operator
    control_plane_settings.py  settings from options, for run and up
    scheduler_options.py       configuration of the scheduler, for run, up and explain
    journal_option.py          option --trace-journal, for run and observe
    gate_warnings.py           warnings about feature gates
"""
