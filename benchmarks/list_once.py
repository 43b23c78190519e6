"""A process of its own: `list_once ours|native ROOT` lists a root and prints how much memory that took."""

from __future__ import annotations

import importlib
import json
import sys

from lance_namespace import ListTablesRequest

from benchmarks.measure import peak_rss

_MODULES = {"ours": "relance", "native": "lance.namespace"}


def main(which: str, root: str) -> None:
    """Import one implementation only, list with it and print the figures."""
    implementation = importlib.import_module(_MODULES[which]).DirectoryNamespace
    namespace = implementation(root=root, manifest_enabled="false", dir_listing_enabled="true")
    imported = peak_rss()
    tables = namespace.list_tables(ListTablesRequest(id=[])).tables
    print(json.dumps({"imported": imported, "peak": peak_rss(), "tables": len(tables)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
