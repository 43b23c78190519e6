"""Operations inside a callback from a thread of Lance, where a scan would abort the interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys, threading
import lance, pyarrow as pa
from relance import DirectoryNamespace

def stream(rows):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()

class Calling(DirectoryNamespace):
    threads = set()

    def list_table_versions(self, request):
        listed = super().list_table_versions(request)
        plain = {"vector": {}, "k": 0}
        self.query_table({"id": ["other"], **plain})
        self.explain_table_query_plan({"id": ["other"], "query": plain})
        self.analyze_table_query_plan({"id": ["other"], **plain})
        self.count_table_rows({"id": ["other"], "predicate": "x > 1"})
        self.insert_into_table({"id": ["other"]}, stream(pa.table({"x": [5]})))
        self.update_table({"id": ["other"], "updates": [["x", "x + 1"]]})
        merged = {"id": ["other"], "on": ["x"], "when_not_matched_insert_all": True}
        self.merge_insert_into_table(merged, stream(pa.table({"x": [77]})))
        self.delete_from_table({"id": ["other"], "predicate": "x = 77"})
        Calling.threads.add(threading.current_thread().name)
        return listed

catalog = Calling(root="lake", table_version_tracking_enabled="true", **json.loads(sys.argv[1]))
catalog.create_table({"id": ["other"]}, stream(pa.table({"x": [1, 2, 3]})))
lance.write_dataset(pa.table({"y": [1]}), namespace_client=catalog, table_id=["t"])
assert any(name.startswith("Dummy") for name in Calling.threads), Calling.threads
"""


@pytest.mark.parametrize("mode", ['{"manifest_enabled": "false"}', '{"dir_listing_enabled": "false"}', "{}"])
def test_every_operation_works_inside_a_callback_from_lance(tmp_path: Path, mode: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, mode], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
