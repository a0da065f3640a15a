"""Preflight: whether a job may start on the chosen nodes. Pure functions of what the nodes answered.

- A new check before the start: write it in `checks.py` and name it in `CHECKS` there. If it needs a fact that nodes
  don't report yet, collect it in `launcher/on_node/probe.py` and read it in `probe_answer.py`.
- Another way to choose a job's GPUs: `choose_gpus` in `gpus.py`; `launcher/commands` checks what GPUS= may say.
- Something else that the plan must know of a node: `plan_input.py`.
"""
