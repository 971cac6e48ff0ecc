"""Run a command, and write its time and its peak memory: launch.py ACCOUNT COMMAND...

A child's peak memory counts from its parent's, so whoever measures must be small: this imports next to nothing.
"""

import json
import resource
import subprocess
import sys
import time

BYTES = 1 if sys.platform == "darwin" else 1024

start = time.perf_counter()
code = subprocess.call(sys.argv[2:])
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * BYTES
with open(sys.argv[1], "w") as account:  # noqa: PTH123 - pathlib would be one more import
    json.dump({"seconds": seconds, "peak_mb": peak / 1e6}, account)
sys.exit(code)
