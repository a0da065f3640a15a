"""Ansible action: shows the table and findings of `preflight_report`, and refuses where a required check failed."""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display


def table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the rows as aligned lines under a heading; columns that are empty everywhere are left out."""
    columns = [name for name in rows[0] if any(row[name] for row in rows)] if rows else []
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in columns}
    lines = [{name: name for name in columns}, *rows]
    return ["  ".join(line[name].ljust(widths[name]) for name in columns).rstrip() for line in lines]


def refused(refusals: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what is wrong with each node; problems of all nodes are under `all`."""
    reasons: dict[str, list[str]] = {}
    for one in refusals:
        reasons.setdefault(one["node"], []).append(one["message"])
    return {node: "; ".join(messages) for node, messages in reasons.items()}


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """Arguments: `report` (what `preflight_report` returns), `missing` (nodes that could not be looked at)."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Print the table; fail, with `ringmaster_refused`, where anything required is missing."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            argument_spec={"report": {"type": "dict", "required": True}, "missing": {"type": "list", "default": []}}
        )
        report = arguments["report"]
        for line in table(report["rows"]):
            Display().display(line)
        for node in arguments["missing"]:
            Display().display(f"{node}: not reached", color="red")
        for one in sorted(report["findings"], key=lambda one: one["required"]):
            Display().display(
                f"{'refused' if one['required'] else 'warning'}: {one['node']}: {one['message']}",
                color="red" if one["required"] else "purple",
            )
        refusals = [one for one in report["findings"] if one["required"]]
        if refusals:
            first = f"{refusals[0]['node']}: {refusals[0]['message']}"
            more = f" (and {len(refusals) - 1} more, see above)" if len(refusals) > 1 else ""
            checks = ", ".join(sorted({one["check"] for one in refusals}))
            result |= {
                "failed": True,
                # By node, for the closing table: this task runs on one node for all.
                "ringmaster_refused": refused(refusals),
                "msg": f"{first}{more}. Nothing was touched. To go on anyway: preflight_accept: [{checks}]",
            }
        return {**result, "changed": False}
