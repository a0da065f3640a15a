import signal
import subprocess
import sys
import time

CODE = """
import time
from trainer.stopping import StopSignal
stop = StopSignal()
stop.install()
print("ready", flush=True)
while not stop.number:
    time.sleep(0.01)
print(stop.number, flush=True)
time.sleep(30)
"""


def test_the_first_signal_is_remembered_and_a_later_one_ends_the_process() -> None:
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == f"{signal.SIGTERM.value}\n"
        process.send_signal(signal.SIGTERM)  # the same request, delivered twice
        time.sleep(0.2)
        assert process.poll() is None
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130
