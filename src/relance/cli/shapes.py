"""The keys of `result` in the JSON document of each command: printed in the reference, checked by tests."""

from __future__ import annotations

_ID = "id, in the form that commands accept"
_JOB = {
    "job": "name of the job",
    "engine": "engine it ran on, and why",
    "dry_run": "whether this was a dry run",
    "seconds": "duration",
    "tables": "list of `table`, `change` (null, or `version`, `rows`, `versions`, `files`, `bytes`, `note`: "
    "what was, or would be, changed), `error` (null, or an error as above), `seconds`",
}
_EACH = {"done": "list of `name`, `error` (null, or an error as above)"}
_RECORD = {
    "record": "record of the run, see [the report](../report.md)",
    "html": "HTML file, or null",
}
_DROPPED = "`table`, `state`, `version`, `deleted_at`, `purge_after`, `deletion_id`, `cascade_id`"

SHAPES: dict[str, dict[str, str]] = {
    "ls": {
        "root": "root of the catalog",
        "namespace": "namespace that is listed, or null for the root",
        "namespaces": "list of `namespace`",
        "tables": "list of `table`, and with --sizes `rows`, `bytes`, `fragments`, `version`, `error`",
        "dropped": f"with --dropped, instead of the three keys above: list of {_DROPPED}",
    },
    "show": {
        "table": _ID,
        "location": "location of the table",
        "declared": "whether the table is declared and has no data yet",
        "version": "latest version",
        "rows": "number of rows",
        "bytes": "size of the data files of the latest version",
        "fragments": "number of fragments",
        "deleted_rows": "deleted rows that still take up space",
        "protected": "whether it is protected from drops",
        "properties": "properties by name",
        "columns": "list of `name`, `type`, `nullable`",
        "indexes": "list of `name`, `columns`, `status`",
        "tags": "version by tag name",
        "branches": "branch names",
        "namespace": "for a namespace, instead of `table`: " + _ID,
        "namespaces": "for a namespace: number of namespaces in it",
        "tables": "for a namespace: number of tables in it",
    },
    "status": {
        "table": _ID,
        "status": "`exists`, `dropped` or `not found`",
        "state": "for a dropped table: state of its marker",
        "version": "for a dropped table: latest version",
        "deleted_at": "for a dropped table: time of the drop",
        "purge_after": "for a dropped table: end of its retention period",
        "deletion_id": "for a dropped table: id of the drop",
        "cascade_id": "for a dropped table: id of the namespace drop that included it, or null",
    },
    "versions": {"table": _ID, "versions": "list of `version`, `at`, `tags`, newest first"},
    "create-namespace": {"namespace": _ID, "properties": "properties by name"},
    "rename": {"table": "the new id", "before": "the old id"},
    "drop": {"done": f"{_EACH['done']}, `deletion_id`, `cascade_id`, `purge_after`, `purged`"},
    "undrop": {"restored": "ids of the restored tables and namespaces"},
    "purge": {
        **_JOB,
        "table": "with --deletion-id: " + _ID,
        "deletion_id": "with --deletion-id: id of the drop",
        "files": "with --deletion-id: number of files deleted, or to be deleted",
        "bytes": "with --deletion-id: number of bytes deleted, or to be deleted",
    },
    "register": {"table": _ID, "location": "location of the table"},
    "deregister": {"table": _ID, "location": "location of the table"},
    "protect": {"done": f"{_EACH['done']}, `protected`"},
    "unprotect": {"done": f"{_EACH['done']}, `protected`"},
    "query": {
        "table": _ID,
        "columns": "column names",
        "rows": "list of objects; with --count or --output, the number of rows",
        "more": "whether there are more rows than listed",
        "path": "with --output: the file",
        "format": "with --output: the file format",
    },
    "import": {
        "table": _ID,
        "version": "new version",
        "rows": "number of rows written; null with Spark",
        "engine": "`local` or `spark`",
    },
    "export": {
        "table": _ID,
        "path": "the file, or the folder with Spark",
        "format": "file format",
        "rows": "number of rows written; null with Spark",
        "engine": "`local` or `spark`",
    },
    "delete-rows": _JOB,
    "update-rows": _JOB,
    "compact": _JOB,
    "refresh-indexes": _JOB,
    "cleanup": _JOB,
    "remove-orphans": _JOB,
    "maintain-manifest": _JOB,
    "migrate": {
        "to": "`manifest`, `markers` or `format`",
        "dry_run": "whether this was a dry run",
        "registered": "tables added to the manifest",
        "dropped": "dropped tables added to the manifest; with --to format: tables that stay dropped",
        "mended": "tables whose row was stale and has been synced",
        "shadowed": "directories whose name is taken by another object; left unchanged",
        "deregistered": "with --to markers: tables that got a marker; with --to format: tables that stay so",
        "declared": "with --to markers: tables marked as declared",
        "settled": "with --to markers: tables no longer marked as declared, because they have data",
        "cleared": "with --to format: tables whose marker is removed because they are not dropped",
        "purging": "with --to format: tables whose purge was interrupted; purge them again",
        "purged": "with --to format: names that keep a tombstone",
        "copied": "with --to format: former names of renamed tables, which become drops of a copied table",
        "rows": "with --to format: ids of rewritten manifest rows",
    },
    "scrub": {
        "findings": "list of `name`, `problem`, `remedy`, `repaired`, `error`",
        "left": "number of problems not repaired",
    },
    "doctor": {
        "root": "root of the catalog",
        "named_by": "where the root was set",
        "checks": "list of `name`, `verdict` (`good`, `bad`, `unknown`), `detail`, `remedy`",
    },
    "policy check": {
        "file": "policy file",
        "problems": "list of `file`, `line`, `key`, `message`",
        "rules": "list of `name`, `line`, `tables`, `parts`",
        "limits": "limits by name",
    },
    "policy explain": {
        "policy": "policy file",
        "explanations": "list of `table`, `error`, `window`, `rules` (`rule`, `line`, `matches`, `why`), "
        "`decisions` (`kind`, `rule`, `overrides`, `acts`, `refused`, `why`, `settings`); dropped tables of "
        "the same name are listed separately",
    },
    "policy schema": {"schema": "JSON schema of policy files"},
    "plan": {**_RECORD, "saved": "with --save: the file"},
    "run": {**_RECORD, "runs": "with --every, instead of both keys above: list of `run`, `state`, `error`"},
    "history": {
        "runs": "list of `run`, `state`, `policy`, `actor`, `engine`, `started_at`, `ended_at`, `message`",
        "actions": "instead of `runs`: list of `run`, `at`, `actor`, `table`, `kind`, `rule`, `why`, "
        "`outcome`, `rows`, `files`, `bytes`, `seconds`, `error`",
    },
    "report": _RECORD,
    "completion": {
        "shell": "name of the shell",
        "script": "completion script",
        "install": "how to install it",
    },
}
