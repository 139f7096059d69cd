"""``python -m fusion_engine``: the command line."""

from __future__ import annotations

import sys

from fusion_engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
