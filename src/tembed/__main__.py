"""``python -m tembed`` is the command ``tembed``, for launchers such as torchrun that start modules."""

import os
import sys

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(__file__)):
        del sys.path[0]  # the current folder, from which the command `tembed` imports nothing either
    from tembed.cli.main import main

    sys.exit(main())
