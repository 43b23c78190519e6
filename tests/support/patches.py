"""The product's names that tests replace, in one table: renaming one in `src` changes one line here.

Tests call `substitute` (with pytest's monkeypatch), `substituted` (as a context manager) or `original`, with
a key of `PATCHED`. test_patches.py checks the table and that no other test module patches the product.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any
from unittest import mock

import pytest

PATCHED = {
    # Stores
    "storage.create": "relance.storage.protocol:ObjectStorage.create",
    "storage.delete": "relance.storage.protocol:ObjectStorage.delete",
    "storage.delete_below": "relance.storage.protocol:ObjectStorage.delete_below",
    "storage.delete_many": "relance.storage.protocol:ObjectStorage.delete_many",
    "storage.head": "relance.storage.protocol:ObjectStorage.head",
    "storage.list_level": "relance.storage.protocol:ObjectStorage.list_level",
    "storage.read": "relance.storage.protocol:ObjectStorage.read",
    "storage.remove_directories": "relance.storage.protocol:ObjectStorage.remove_directories",
    "storage.replace_many": "relance.storage.protocol:ObjectStorage.replace_many",
    "disk.create": "relance.storage.local_disk:LocalDiskStorage.create",
    "disk.list_level": "relance.storage.local_disk:LocalDiskStorage.list_level",
    "disk.read": "relance.storage.local_disk:LocalDiskStorage.read",
    "disk.sync_directory": "relance.storage.local_disk:sync_directory",
    "disk.sync_file_system": "relance.storage.disk_files:_file_system_sync",
    "disk.sync_temporary_files": "relance.storage.temporary_files:sync_files",
    "disk.unlink_all": "relance.storage.local_disk:unlink_all",
    "disk.write_temporary_file": "relance.storage.temporary_files:write_new",
    "trash.end_part": "relance.storage.trash:_Part.end",
    "trash.remove": "relance.storage.trash:Trash.remove",
    "trash.remove_tree": "relance.storage.trash:remove_tree",
    "trash.descriptors": "relance.storage.trash:_DESCRIPTORS",
    "connect.local_disk": "relance.storage.connect:LocalDiskStorage",
    "probe.seen": "relance.storage.probe:_seen",
    "readback.own_version": "relance.storage.readback:_own_version",
    # Catalog and manifest
    "clock.store_now": "relance.catalog.context:Context.store_now",
    "catalog.check_format": "relance.catalog.context:Context.check_format",
    "manifest.commit": "relance.catalog.manifest.table:LanceManifest.commit",
    "manifest.since_boot": "relance.catalog.manifest.table:since_boot",
    "manifest.build_operation": "relance.catalog.manifest.table:_build",
    "manifest.head_rows": "relance.catalog.manifest.table:HEAD_ROWS",
    "manifest.most_known_ids": "relance.catalog.manifest.snapshot:_MOST_KNOWN",
    "manifest.read_file_ids": "relance.catalog.manifest.cache:_read_ids",
    "manifest.recent_seconds": "relance.catalog.manifest.table:RECENT_SECONDS",
    "manifest.read_for_seconds": "relance.catalog.manifest.table:READ_FOR_SECONDS",
    "manifest.read_small_file": "relance.catalog.manifest.cache:FileCache._read_small",
    "manifest.rewrite": "relance.catalog.manifest.table:LanceManifest._rewrite",
    "manifest.small_rows": "relance.catalog.manifest.table:SMALL_ROWS",
    "manifest.withdraw": "relance.catalog.manifest.table:LanceManifest._withdraw",
    "model_rows.withdraw": "relance.testing.model_rows:ModelManifest._withdraw",
    # Lifecycle
    "claim.purging": "relance.catalog.purge:purging",
    "claim.margin": "relance.catalog.arbiter:MARGIN",
    "claim.taken_over": "relance.catalog.arbiter:taken_over",
    "create.require_create_only": "relance.catalog.create:require_create_only",
    "purge.delete_listed": "relance.catalog.purge:_delete_listed",
    "purge.empty_directories": "relance.catalog.purge:_empty",
    "purge.finish_group": "relance.catalog.purge:_end",
    "purge.largest_batch": "relance.catalog.purge:LARGEST_BATCH",
    "purge.purge_claimed": "relance.catalog.purge:_purge_held",
    "purge.report_progress": "relance.catalog.purge:_Held.add",
    "purge.release": "relance.catalog.purge:_release",
    "purge.remembered_files": "relance.catalog.purge:REMEMBERED",
    "purge.swap_files": "relance.catalog.purge:swap_files",
    "retention.margin": "relance.catalog.resolve:MARGIN",
    "migration.batch": "relance.catalog.repair:_BATCH",
    "copying.map_at_once": "relance.catalog.copying:map_at_once",
    "rename.remove_copy": "relance.catalog.rename:remove_copy",
    "rename.show": "relance.catalog.rename:_show",
    "rename.swap_file": "relance.catalog.rename:swap_file",
    "rename.take_back": "relance.catalog.rename:take_back",
    "purge_job.most_tables": "relance.jobs.plans.expired_drops:MOST_TABLES",
    "purge_job.purge": "relance.jobs.plans.expired_drops:purge_ready",
    "purge_job.purge_rows": "relance.jobs.plans.expired_drops:purge_generations",
    "row_purge.delete_directory": "relance.catalog.purge:delete_directory",
    "registration.free_name": "relance.catalog.register:free_name",
    # Lifecycle: guards that are switched off
    "guard.arbiter_returned": "relance.catalog.arbiter:returned",
    "guard.begin_lease_of_drop": "relance.catalog.drop:begin_lease",
    "guard.begin_lease_of_purge": "relance.catalog.purge:begin_lease",
    "guard.cleared_by_undrop": "relance.catalog.drop:cleared",
    "guard.commit_next": "relance.catalog.create:commit_next",
    "guard.counts": "relance.catalog.states:counts",
    "guard.counts_in_drop": "relance.catalog.drop:counts",
    "guard.delete_mark": "relance.catalog.arbiter:delete_mark",
    "guard.delete_mark_by_create": "relance.catalog.create:delete_mark",
    "guard.delete_marks": "relance.catalog.arbiter:delete_marks",
    "guard.delete_marks_by_purge": "relance.catalog.purge:delete_marks",
    "guard.delete_mark_by_undrop": "relance.catalog.drop:delete_mark",
    "guard.fence_is_up": "relance.catalog.purge:fence_is_up",
    "guard.find_in": "relance.catalog.resolve:find_in",
    "guard.has_foreign_version": "relance.catalog.context:Context.has_foreign_version",
    "guard.home_rows": "relance.catalog.arbiter:home_rows",
    "guard.home_rows_in_resolve": "relance.catalog.resolve:home_rows",
    "guard.is_dead": "relance.catalog.purge:is_dead",
    "guard.is_doomed": "relance.catalog.purge:_Held.is_doomed",
    "guard.is_expired": "relance.catalog.purge:is_expired",
    "guard.is_same_in_copy": "relance.catalog.copying:is_same",
    "guard.is_same_in_rename": "relance.catalog.rename:is_same",
    "guard.is_strict": "relance.catalog.states:is_strict",
    "guard.is_strict_in_purge": "relance.catalog.purge:is_strict",
    "guard.is_unchanged": "relance.catalog.create:_is_unchanged",
    "guard.look_again": "relance.catalog.purge:_look_again",
    "guard.may_revive": "relance.catalog.create:_may_revive",
    "guard.new_nonce": "relance.catalog.states:new_nonce",
    "guard.purged": "relance.catalog.purge:purged",
    "guard.put_mark": "relance.catalog.drop:put_mark",
    "guard.resolve_outcome": "relance.testing.model_rows:ModelManifest._resolve_outcome",
    "guard.restore": "relance.testing.model_tables:ModelTables.restore",
    "guard.read_listed": "relance.catalog.layout:read_control",
    "guard.require_undisturbed": "relance.testing.model_rows:require_undisturbed",
    "guard.reviving": "relance.catalog.create:reviving",
    "guard.rows_commit": "relance.testing.model_rows:ModelManifest.commit",
    "guard.same_row": "relance.catalog.arbiter:same_row",
    "guard.same_row_in_undrop": "relance.catalog.drop:same_row",
    "guard.still_ours": "relance.catalog.purge:_Held.still_ours",
    "guard.swap_deleted": "relance.catalog.drop:swap_deleted",
    "guard.swap_file_in_create": "relance.catalog.create:swap_file",
    "guard.swap_file_in_drop": "relance.catalog.drop:swap_file",
    "guard.sync_many": "relance.catalog.arbiter:sync_many",
    "guard.sync_many_in_purge": "relance.catalog.purge:sync_many",
    "guard.tidy": "relance.catalog.purge:tidy",
    # Versions and rows of tables
    "managed_versions.put_final": "relance.operations.managed_versions:put_final",
    "managed_versions.synchronise": "relance.operations.managed_versions:synchronise",
    "rows.check_count_expressions": "relance.operations.data.count:check_expressions",
    "rows.create_for_insert": "relance.operations.data.insert:create",
    "rows.find_table": "relance.operations.targets:find_table",
    "staging.append": "relance.operations.staging.commit:_append",
    "staging.commit_transaction": "relance.operations.staging.commit:commit_transaction",
    "staging.landed_version": "relance.operations.staging.commit:landed_version",
    "tables.commit": "relance.lance_io:PylanceTables.commit",
    "tables.write_fragments": "relance.lance_io:write_fragments",
    # Maintenance
    "cleanup.files_per_task": "relance.operations.cleaning.retired_files:_PER_TASK",
    "compaction.commit_class": "relance.jobs.plans.compaction:Compaction",
    "compaction.fitting_tasks": "relance.jobs.plans.compaction:_fitting",
    "engine.alone_seconds": "relance.jobs.engine:_ALONE_SECONDS",
    "engine.back_off": "relance.jobs.engine:back_off",
    "merge.back_off": "relance.jobs.merging.merges:back_off",
    "merge.commit": "relance.jobs.merging.merges:commit_merge",
    "merge.count_same_keys": "relance.jobs.merging.merge_here:HereEngine.count_same_keys",
    "merge.work": "relance.jobs.merging.merge_here:HereEngine.work",
    "orphans.remove_leftovers": "relance.jobs.plans.orphans:remove_leftovers",
    "pacing.monotonic": "relance.operations.cleaning.pacing:monotonic",
    "pacing.pacer": "relance.operations.cleaning.pacing:_pacer",
    "pacing.sleep": "relance.operations.cleaning.pacing:sleep",
    "plan.finish": "relance.jobs.base:TablePlan.finish",
    "row_changes.prepare": "relance.jobs.plans.row_changes:Rewrite.prepare",
    "row_changes.task_seconds": "relance.jobs.plans.row_changes:TASK_SECONDS",
    "row_deletes.most_known_rows": "relance.jobs.plans.row_deletes:_KNOWN",
    "row_deletes.sparse_share": "relance.jobs.plans.row_deletes:_SPARSE",
    # Policy
    "history.add_actions": "relance.policy.past_runs:History.add_actions",
    "history.add_run": "relance.policy.past_runs:History.add_run",
    "history.many_fragments": "relance.policy.past_runs:_MANY_FRAGMENTS",
    "history.old_versions": "relance.policy.past_runs:_OLD_VERSIONS",
    "policy.gather_per_task": "relance.jobs.gather:_PER_TASK",
    "policy.gather_window": "relance.jobs.gather:_WINDOW",
    "policy.repeat": "relance.policy.schedule:repeat",
    "policy.run_policy": "relance.policy:run_policy",
    "policy_lease.start": "relance.policy.lease:Lease.start",
    "policy_lease.stop": "relance.policy.lease:Lease.stop",
    "policy_lease.this_process": "relance.policy.lease:this_process",
    "policy_run.begin_plan": "relance.policy.running:begin",
    "policy_run.end_plan": "relance.policy.running:end",
    "policy_run.do_actions": "relance.policy.running:Execution._done",
    "policy_run.plan": "relance.policy.running:plan_of_run",
    "policy_run.execution": "relance.policy.running:Execution",
    "policy_plan.new_run": "relance.policy.planning:new_run",
    "policy_plan.kept_dropped": "relance.policy.planning:_KEPT_DROPPED",
    "policy_runs.new_run": "relance.policy.running:new_run",
    "step.plan": "relance.jobs.base:Step.plan",
    "policy_steps.tables_together": "relance.policy.planning:TOGETHER",
    # Spark
    "spark_merge.counted": "relance.spark.merge_place:_counted",
    "spark_merge.giant_rows": "relance.spark.merge_place:GIANT",
    "spark_merge.most_keys": "relance.spark.merge_keys:MOST_KEYS",
    "spark_merge.most_rows": "relance.spark.merge_place:MOST_ROWS",
    "spark_merge.parallelism": "relance.spark.merge_place:parallelism",
    "spark_merge.write": "relance.spark.merge_few:_Write",
    "stream.commit_write": "relance.spark.streaming.progress:commit_write",
    "stream.put_progress": "relance.spark.streaming.progress:put_progress",
    # Command line
    "cli.run_job": "relance.cli.maintaining:run_job",
    "cli.user_id": "relance.cli.catalog_options:_user_id",
    "cli.is_somebody_there": "relance.cli.asking:is_somebody_there",
    # The explorer and its models
}
"""Where each name is: the module that looks it up, a colon, and the path to the attribute in it."""


def target(key: str) -> tuple[Any, str]:
    """Return the module or class that holds the name, and the name itself."""
    module, _, path = PATCHED[key].partition(":")
    *owners, name = path.split(".")
    return reduce(getattr, owners, importlib.import_module(module)), name


def original(key: str, *, on: Any = None) -> Any:
    """Return what the name stands for now: the product's own, unless it is patched.

    With `on`, return the attribute of that object or class instead of the one in the table.
    """
    owner, name = target(key)
    return getattr(owner if on is None else on, name)


def substitute(monkeypatch: pytest.MonkeyPatch, key: str, value: Any, *, on: Any = None) -> None:
    """Replace a name until monkeypatch undoes it.

    With `on`, replace the attribute of that object or class instead of the one in the table.
    """
    owner, name = target(key)
    monkeypatch.setattr(owner if on is None else on, name, value)


def substituted(key: str, value: Any = mock.DEFAULT, **options: Any) -> AbstractContextManager[Any]:
    """Replace a name within a `with` block, by a mock with these options if no value is given."""
    owner, name = target(key)
    patch: AbstractContextManager[Any] = mock.patch.object(owner, name, value, **options)
    return patch


def substitute_for_good(key: str, value: Any) -> None:
    """Replace a name for the rest of this process, which belongs to the test."""
    setattr(*target(key), value)
