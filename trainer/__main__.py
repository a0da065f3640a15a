"""Entry point: `torchrun -m trainer`."""

import os
import sys

from trainer import metrics  # noqa: F401  (first of all: its clock starts here, before the seconds that torch takes)
from trainer.config import parse
from trainer.errors import UserError


def main() -> int:
    """Runs the trainer; returns its exit code. Unexpected errors raise, so that torchrun records them."""
    try:
        config = parse(sys.argv[1:], os.environ)
        from trainer.run import run  # after the arguments are known to be good: torch is slow to import

        return run(config)
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        print(f"trainer: error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
