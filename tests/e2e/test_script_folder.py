"""A script may use any name in RUN_DIR: what it writes is kept, and what the launcher writes is the launcher's."""

from collections.abc import Callable
from pathlib import Path

from tests.e2e.jobs import Trainer

Script = Callable[..., Path]

OWN_NAMES = """
import json, os, time
run, rank = os.environ["RUN_DIR"], os.environ["RANK"]
if rank == "0":
    assert not os.path.exists(run + "/plan.json"), "a plan that is not this script's"
    os.makedirs(run + "/logs")
    for line in range(3):
        with open(run + "/logs/node1.log", "a") as file:
            print("mine", line, file=file, flush=True)
    with open(run + "/plan.new", "w") as file:
        json.dump({"mine": True}, file)
    os.replace(run + "/plan.new", run + "/plan.json")
    for name in ("model.pt", "report.html", "checkpoints/last.pt"):
        with open(f"{run}/{name}", "w") as file:
            file.write("mine")
    with open(run + "/metrics.jsonl", "a") as file:
        print(json.dumps({"kind": "step", "step": 7, "loss": 1.0}), file=file)
print(sorted(os.listdir(os.environ["CHECKPOINT_DIR"])), flush=True)
with open(f"{run}/summary.json" if rank == "0" else f"{run}/of rank {rank}", "w") as file:
    file.write('{"mine": true}')
"""


def test_a_script_and_the_launcher_use_the_same_names(train: Trainer, script: Script) -> None:
    job = train(NODES=2, SCRIPT=script(OWN_NAMES))
    assert job.exit_code == 0, job.output
    aside = job.folder / "nodes" / "node1"
    assert (aside / "plan.json").read_text() == '{"mine": true}' and job.plan["name"] == job.name
    assert (aside / "summary.json").read_text() == '{"mine": true}' and job.summary["state"] == "succeeded"
    assert (aside / "logs/node1.log").read_text() == "mine 0\nmine 1\nmine 2\n"
    assert "mine" not in (job.folder / "logs/node1.log").read_text()
    assert (aside / "report.html").read_text() == "mine" != (job.folder / "report.html").read_text()
    assert [(job.folder / name).read_text() for name in ("model.pt", "of rank 1")] == ["mine", '{"mine": true}']
    assert '"step": 7' in (job.folder / "metrics.jsonl").read_text() and not (job.folder / "run").exists()

    again = train(NODES=2, RESUME=job.name)
    assert again.exit_code == 0, again.output
    assert again.lines_of("node2:1") == ["['last.pt']"], "the plan that RESUME has read is ours"
