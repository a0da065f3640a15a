"""An agent of OpenSSH."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster.live_engine import until


@contextmanager
def agent_with(*files: Path) -> Iterator[str]:
    """Give the socket of an agent that holds these keys."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        socket = f"{folder}/agent"
        with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL) as agent:
            try:
                until(lambda: Path(socket).exists())
                for file in files:
                    add = ["ssh-add", "-q", str(file)]
                    subprocess.run(add, env={**os.environ, "SSH_AUTH_SOCK": socket}, check=True, capture_output=True)
                yield socket
            finally:
                agent.terminate()
