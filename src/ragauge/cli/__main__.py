"""`python -m ragauge.cli`: the command line where the environment's `bin` is not on the path."""

import sys

from ragauge.cli._main import main

sys.exit(main())
