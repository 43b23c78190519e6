"""Jobs that remove files: old versions, dropped tables, what nothing names."""
