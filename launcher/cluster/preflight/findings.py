"""What the checks before a job look at (`Candidate`, `JobNeeds`) and what they find (`Finding`, `Report`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.node_table import Row
from launcher.cluster.preflight.gpus import GpuChoice, JobOnNode
from launcher.cluster.preflight.probe_answer import ProbeAnswer
from launcher.cluster.preflight.requirements import Requirements
from launcher.image.labels import ImageFacts
from launcher.inventory.hosts import Host


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that isn't as it should be, and how to fix it."""

    node: str = ""
    """Empty: it concerns all of them."""
    what: str
    refuses: bool = True
    """Whether it keeps the job from starting; otherwise it is only a warning."""
    exit_code: ExitCode = ExitCode.NOT_STARTED
    """What the launcher exits with if this refuses the job."""
    lacks_image: bool = False
    """Whether it would be all right once the image is brought to the nodes."""

    def __str__(self) -> str:
        return f"{self.node}: {self.what}" if self.node else self.what


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A node that was chosen for a job, with all that is known of it."""

    host: Host
    answer: ProbeAnswer
    choice: GpuChoice
    image: ImageFacts | None
    """The recorded image as this node's engine has it; None if the engine doesn't have it."""
    jobs: tuple[JobOnNode, ...] = ()
    engine_problem: str = ""
    """Why its container engine can't run jobs; empty if it can."""

    def problem(self, what: str, *, lacks_image: bool = False) -> Finding:
        """Return a finding about this node that keeps the job from starting."""
        return Finding(node=self.host.name, what=what, lacks_image=lacks_image)

    def warning(self, what: str) -> Finding:
        """Return a finding about this node that is only printed."""
        return Finding(node=self.host.name, what=what, refuses=False)


@dataclass(frozen=True, kw_only=True)
class JobNeeds:
    """What the job needs of its nodes."""

    name: str = ""
    """The job's."""
    image: str
    """The recorded image; empty if none is recorded."""
    named: bool = False
    """Whether it is the inventory that names it, so that `make image` builds none."""
    trainer: str
    """The hash of this checkout's own part of an image."""
    bundled: bool = True
    """Whether it is the bundled trainer's."""
    requirements: Requirements | None = None
    """The packages that the user's script asks for; None if it doesn't say."""
    module: str = ""
    """The module, or `package:script`, that the image has to have; empty where the user's own code has it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables of the user's shell that reach the ranks."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What ENV gives the ranks."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All findings: problems keep the job from starting, warnings are printed."""

    problems: tuple[Finding, ...]
    warnings: tuple[Finding, ...]

    @property
    def lacks_image(self) -> bool:
        """Whether the image is to be brought: something would be all right then, and nothing else refuses the job."""
        fixable = any(finding.lacks_image for finding in (*self.problems, *self.warnings))
        return fixable and all(problem.lacks_image for problem in self.problems)

    @property
    def error(self) -> RingmasterError:
        """The refusal. For several problems it refers to the table (`rows`), which must have been shown."""
        code = self.problems[0].exit_code
        if any(problem.exit_code != code for problem in self.problems):
            code = ExitCode.NOT_STARTED
        if len(self.problems) == 1:
            return RingmasterError(str(self.problems[0]), exit_code=code)
        who = ", ".join(dict.fromkeys(problem.node or "all nodes" for problem in self.problems))
        return RingmasterError(f"{who}: can't run the job (see the table); nothing was started", exit_code=code)


def rows(candidates: Sequence[Candidate], report: Report) -> list[Row]:
    """Return the table's rows: one for every problem, and at least one for every node."""
    table = [Row(name="all", address="", state="refused", why=one.what) for one in report.problems if not one.node]
    for candidate in candidates:
        name, address = candidate.host.name, candidate.host.address
        problems = [one.what for one in report.problems if one.node == name]
        table += [Row(name=name, address=address, state="refused", why=what) for what in problems]
        table += [] if problems else [Row(name=name, address=address, state="ok")]
    return table
