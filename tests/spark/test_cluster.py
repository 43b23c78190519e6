"""The cluster that other tests rely on; what runs and is killed in it is in test_on_cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.spark.cluster import Cluster, ClusterError

pytestmark = pytest.mark.deep


def test_driver_that_fails_or_hangs_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys, time\ntime.sleep(float(sys.argv[1]))\nsys.exit('no')")
    failed = cluster.run(script, "0")
    assert (failed.returncode, failed.stderr.strip()) == (1, "no")
    with pytest.raises(ClusterError, match="took over"):
        cluster.run(script, "60", timeout=0.5)
