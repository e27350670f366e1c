"""``python -m tembed`` is the command ``tembed``, for launchers such as torchrun that start modules."""

import sys

from tembed.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
