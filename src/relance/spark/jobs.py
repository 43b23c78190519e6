"""The file that spark-submit is given: `spark-submit .../relance/spark/jobs.py run policy.toml --root ROOT`.

What it can do and how it answers is in submit.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # A script's own folder comes first in the path, and `types` in this one is not what Python means by it.
    sys.path[:] = [each for each in sys.path if not each.rstrip("/").endswith("relance/spark")]
    from relance.spark.submit import main

    sys.exit(main(sys.argv[1:]))
