"""Jobs that change how a table lies in files: compaction, indexes, the manifest."""
