"""What `result` holds in the JSON document of each command: the reference shows it, tests hold it true."""

from __future__ import annotations

_ID = "its id, as commands take it"
_JOB = {
    "job": "what was done",
    "engine": "where it ran, and why there",
    "dry_run": "whether nothing was changed",
    "seconds": "how long it took",
    "tables": "list of `table`, `change` (null, or `version`, `rows`, `versions`, `files`, `bytes`, `note`: "
    "what was, or would be, done), `error` (null, or as for a command), `seconds`",
}
_EACH = {"done": "list of `name`, `error` (null, or as for a command) and what follows"}
_RECORD = {
    "record": "the run: as [the report](../report.md) has it",
    "html": "the file with the page, or null",
}
_DROPPED = "`table`, `state`, `version`, `deleted_at`, `purge_after`, `deletion_id`, `cascade_id`"

SHAPES: dict[str, dict[str, str]] = {
    "ls": {
        "root": "the catalog",
        "namespace": "what is listed, or null for the root",
        "namespaces": "list of `namespace`",
        "tables": "list of `table`, with --sizes also `rows`, `bytes`, `fragments`, `version`, `error`",
        "dropped": f"with --dropped, in place of the three before: list of {_DROPPED}",
    },
    "show": {
        "table": _ID,
        "location": "where it lies",
        "declared": "whether it is a name without rows",
        "version": "the latest",
        "rows": "how many there are",
        "bytes": "of the data files of the latest version",
        "fragments": "how many there are",
        "deleted_rows": "rows that are deleted and whose bytes are still there",
        "protected": "whether drops are refused",
        "properties": "by name",
        "columns": "list of `name`, `type`, `nullable`",
        "indexes": "list of `name`, `columns`, `status`",
        "tags": "versions by name",
        "branches": "names",
        "namespace": "of a namespace, in place of `table`: " + _ID,
        "namespaces": "of a namespace: how many are in it",
        "tables": "of a namespace: how many are in it",
    },
    "status": {
        "table": _ID,
        "status": "`exists`, `dropped` or `not found`",
        **dict.fromkeys(
            ("state", "version", "deleted_at", "purge_after", "deletion_id", "cascade_id"),
            "of a dropped table",
        ),
    },
    "versions": {"table": _ID, "versions": "list of `version`, `at`, `tags`, newest first"},
    "create-namespace": {"namespace": _ID, "properties": "by name"},
    "rename": {"table": "the new id", "before": "the old id"},
    "drop": {"done": f"{_EACH['done']}: `deletion_id`, `cascade_id`, `purge_after`, `purged`"},
    "undrop": {"restored": "ids of all that is back"},
    "purge": {
        **_JOB,
        "table": "with --deletion-id, in place of all before: " + _ID,
        "deletion_id": "with --deletion-id",
        "files": "with --deletion-id: how many were removed",
        "bytes": "with --deletion-id: how many were removed",
    },
    "register": {"table": _ID, "location": "where it lies"},
    "deregister": {"table": _ID, "location": "where it lies"},
    "protect": {"done": f"{_EACH['done']}: `protected`"},
    "unprotect": {"done": f"{_EACH['done']}: `protected`"},
    "query": {
        "table": _ID,
        "columns": "names",
        "rows": "list of objects; with --count or --output how many",
        "more": "whether there are more rows than are shown",
        "path": "with --output: the file",
        "format": "with --output: what it holds",
    },
    "import": {
        "table": _ID,
        "version": "the one that was made",
        "rows": "how many were written; null with Spark",
        "engine": "`local` or `spark`",
    },
    "export": {
        "table": _ID,
        "path": "the file, or with Spark the folder",
        "format": "what it holds",
        "rows": "how many were written; null with Spark",
        "engine": "`local` or `spark`",
    },
    "delete-rows": _JOB,
    "compact": _JOB,
    "cleanup": _JOB,
    "migrate": {
        "to": "`manifest` or `markers`",
        "dry_run": "whether nothing was changed",
        "registered": "tables that got a row",
        "dropped": "dropped tables that got a row",
        "mended": "tables whose row was out of step",
        "shadowed": "directories whose name another object has",
        "deregistered": "with --to markers: tables that got a marker",
        "declared": "with --to markers: tables that got the sign of a declared one",
        "settled": "with --to markers: tables that lost that sign",
    },
    "scrub": {
        "findings": "list of `name`, `problem`, `remedy`, `repaired`, `error`",
        "left": "how many are not repaired",
    },
    "doctor": {
        "root": "the catalog",
        "named_by": "where its root was found",
        "checks": "list of `name`, `verdict` (`good`, `bad`, `unknown`), `detail`, `remedy`",
    },
    "policy check": {
        "file": "the policy",
        "problems": "list of `file`, `line`, `key`, `message`",
        "rules": "list of `name`, `line`, `tables`, `parts`",
        "limits": "by name",
    },
    "policy explain": {
        "policy": "the file",
        "explanations": "list of `table`, `error`, `window`, `rules` (`rule`, `line`, `matches`, `why`), "
        "`decisions` (`kind`, `rule`, `overrides`, `acts`, `refused`, `why`, `settings`); dropped tables of "
        "the same name have their own",
    },
    "policy schema": {"schema": "the JSON schema of policy files"},
    "plan": {**_RECORD, "saved": "with --save: the file"},
    "run": {**_RECORD, "runs": "with --every, in place of both: list of `run`, `state`, `error`"},
    "history": {
        "runs": "list of `run`, `state`, `policy`, `actor`, `engine`, `started_at`, `ended_at`, `message`",
        "actions": "in place of `runs`: list of `run`, `at`, `actor`, `table`, `kind`, `rule`, `why`, "
        "`outcome`, `rows`, `files`, `bytes`, `seconds`, `error`",
    },
    "report": _RECORD,
    "completion": {"shell": "its name", "script": "what it loads", "install": "how"},
}
