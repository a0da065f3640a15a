import signal
import subprocess
import sys

CODE = """
import sys, time
from trainer.distributed import signals
signals.PATIENCE = 60.0
stop = signals.StopSignal()
stop.install()
print("ready", flush=True)
while not stop.number:
    time.sleep(0.01)
print(stop.number, flush=True)
sys.stdin.readline()
signals.PATIENCE = 0.0
print("over", flush=True)
time.sleep(60)
"""


def test_the_first_signal_is_remembered_and_a_later_one_ends_the_process() -> None:
    """The test decides when patience is over, so a machine that stalls can't end it."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", CODE], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == f"{signal.SIGTERM.value}\n"
        process.send_signal(signal.SIGTERM)  # the same request, delivered twice
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "over\n", "it lives on"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
