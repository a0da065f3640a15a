"""`python -m launcher --version`. The verbs are make's and Fabric's."""

import sys

from launcher.base.errors import ExitCode
from launcher.base.version import version

if sys.argv[1:] == ["--version"]:
    print(f"ringmaster {version()}")
else:
    print("usage: python -m launcher --version; `make help` shows what Ringmaster can do", file=sys.stderr)
    sys.exit(ExitCode.USAGE)
