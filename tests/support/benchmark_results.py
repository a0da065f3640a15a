"""A whole result, and a machine that it was measured on."""

from benchmarks.machine import Machine
from benchmarks.result import Chart, Curve, Ratio, Result, Row

MACHINE = Machine(
    cpu="A CPU", cores=2, memory_gib=24, gpus=(), system="Debian", python="3.11.7", torch="2.15.0",
    torchvision="0.29.2", commit="abc1234", date="2026-01-31",
)  # fmt: skip

WHOLE = Result(
    name="step",
    title="A step",
    command="make bench ONLY=step",
    rows=(
        Row(label="naive", unit="s", values=(3.0, 1.0, 2.0)),
        Row(label="dp", unit="s", values=(), note="n/a: no GPU"),
    ),
    ratios=(Ratio(label="naive / ours", value=2.5, least=2.0), Ratio(label="dp / ours", value=None)),
    charts=(
        Chart(name="c", title="C", x="x", y="y", curves=(Curve(label="a", points=((1.0, 2.0), (2.0, 3.0))),),
              logarithmic=True),
    ),
    notes=("One process.",),
)  # fmt: skip
