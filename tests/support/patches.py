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
    "storage.discard": "relance.storage.protocol:ObjectStorage.discard",
    "storage.head": "relance.storage.protocol:ObjectStorage.head",
    "storage.list_level": "relance.storage.protocol:ObjectStorage.list_level",
    "storage.read": "relance.storage.protocol:ObjectStorage.read",
    "storage.replace_many": "relance.storage.protocol:ObjectStorage.replace_many",
    "disk.create": "relance.storage.local_disk:LocalDiskStorage.create",
    "disk.list_level": "relance.storage.local_disk:LocalDiskStorage.list_level",
    "disk.sync_directory": "relance.storage.local_disk:sync_directory",
    "disk.sync_file_system": "relance.storage.disk_files:_file_system_sync",
    "disk.sync_temporary_files": "relance.storage.temporary_files:sync_files",
    "disk.unlink_all": "relance.storage.local_disk:unlink_all",
    "disk.write_temporary_file": "relance.storage.temporary_files:write_new",
    "trash.discard": "relance.storage.set_aside:SetAside.discard",
    "trash.finish_part": "relance.storage.set_aside:_Part.end",
    "trash.remove": "relance.storage.set_aside:SetAside._remove",
    "connect.local_disk": "relance.storage.connect:LocalDiskStorage",
    "probe.seen": "relance.storage.probe:_seen",
    "readback.own_version": "relance.storage.readback:_own_version",
    # Catalog and manifest
    "clock.now": "relance.clock:SystemClock.now",
    "catalog.list_namespaces": "relance:DirectoryNamespace.list_namespaces",
    "manifest.build_operation": "relance.manifest.lance_manifest:_build",
    "manifest.commit": "relance.manifest.lance_manifest:LanceManifest.commit",
    "manifest.head_rows": "relance.manifest.lance_manifest:HEAD_ROWS",
    "manifest.latest": "relance.manifest.lance_manifest:LanceManifest.latest",
    "manifest.many_versions": "relance.manifest.upkeep:_MANY_VERSIONS",
    "manifest.most_known_ids": "relance.manifest.lance_snapshot:_MOST_KNOWN",
    "manifest.read_file_ids": "relance.manifest.data_files:_read_ids",
    "manifest.read_for_seconds": "relance.manifest.lance_manifest:READ_FOR_SECONDS",
    "manifest.read_small_file": "relance.manifest.data_files:FileCache._read_small",
    "manifest.since_boot": "relance.manifest.opening:since_boot",
    "manifest.snapshot_age": "relance.manifest.lance_manifest:since_boot",
    "manifest.small_rows": "relance.manifest.lance_manifest:SMALL_ROWS",
    # Lifecycle, by marker
    "claim.ensure": "relance.operations.directory.claims:Claim.ensure",
    "claim.holder_is_gone": "relance.operations.directory.claims:holder_is_gone",
    "claim.recover": "relance.operations.directory.claims:recover",
    "claim.settle": "relance.operations.directory.claims:Claim.settle",
    "create.is_unchanged": "relance.operations.directory.create:is_unchanged",
    "create.require_create_only": "relance.operations.directory.create:require_create_only",
    "declare.creators_are_gone": "relance.operations.directory.declare:creators_are_gone",
    "declare.require_create_only": "relance.operations.directory.declare:require_create_only",
    "drop.settled_marker": "relance.operations.directory.drop:settled_marker",
    "overwrite.capabilities": "relance.operations.directory.overwrite:capabilities",
    "purge.claim_group": "relance.operations.directory.purge_group:claim_purges",
    "purge.delete_listed": "relance.operations.directory.purge_group:_delete_listed",
    "purge.empty_directories": "relance.operations.directory.purge_group:_empty",
    "purge.finish_group": "relance.operations.directory.purge_group:_end",
    "purge.holder_is_gone": "relance.operations.directory.purge:holder_is_gone",
    "purge.largest_batch": "relance.operations.deletion:LARGEST_BATCH",
    "purge.purge_claimed": "relance.operations.directory.purge_group:_purge_held",
    "purge.remembered_files": "relance.operations.deletion:REMEMBERED",
    "purge.settle_group": "relance.operations.directory.purge_group:settle_all",
    "purge.writers_are_gone": "relance.operations.directory.purge:writers_are_gone",
    "shared_purge.claim_purge": "relance.operations.shared_purge:claim_purge",
    "sweep.remove_marker": "relance.operations.directory.sweep:_remove",
    # Lifecycle, by row
    "create.announced_swap": "relance.operations.create:announced_swap",
    "create.name_claim": "relance.operations.create:NameHold",
    "drop.announced_swap": "relance.operations.drop:announced_swap",
    "migration.batch": "relance.operations.migration:_BATCH",
    "rename.refuse_pending": "relance.operations.rows.rename:refuse_pending",
    "row_claim.held": "relance.operations.rows.claims:RowClaim.held",
    "row_claim.holder_is_gone": "relance.operations.rows.claims:holder_is_gone",
    "row_drop.same_drop": "relance.operations.rows.drop:same_drop",
    "row_purge.delete_directory": "relance.operations.rows.purge:delete_directory",
    "row_purge.holder_is_gone": "relance.operations.rows.purge:holder_is_gone",
    "row_purge.refuse_shared": "relance.operations.rows.purge:_refuse_shared",
    "row_purge.same_drop": "relance.operations.rows.purge:same_drop",
    "row_registration.register": "relance.operations.rows.registration:register",
    "sync.announced_row": "relance.operations.announcing:announced_row",
    "sync.end_move": "relance.operations.announcing:end_move",
    "sync.move_away": "relance.operations.announcing:move_away",
    "sync.settle": "relance.operations.announcing:_settle",
    # Versions and rows of tables
    "managed_versions.copy_staged": "relance.operations.managed_versions:copy_staged",
    "managed_versions.is_copy": "relance.version_store.agreement:is_copy",
    "managed_versions.put_final": "relance.operations.managed_versions:put_final",
    "managed_versions.synchronise": "relance.operations.managed_versions:synchronise",
    "rows.check_count_expressions": "relance.operations.data.count:check_expressions",
    "rows.create_for_insert": "relance.operations.data.insert:create",
    "rows.visible_table": "relance.operations.targets:visible_table",
    "staging.append": "relance.operations.staging.commit:_append",
    "staging.commit_transaction": "relance.operations.staging.commit:commit_transaction",
    "staging.landed_version": "relance.operations.staging.commit:landed_version",
    "tables.commit": "relance.operations.lance_tables:PylanceTables.commit",
    "tables.write_fragments": "relance.operations.lance_tables:write_fragments",
    # Maintenance
    "cleanup.files_per_task": "relance.maintenance.removal.old_versions:_PER_TASK",
    "compaction.commit_class": "relance.maintenance.layout.rewrites:Compaction",
    "compaction.fitting_tasks": "relance.maintenance.layout.rewrites:_fitting",
    "engine.alone_seconds": "relance.maintenance.execute:_ALONE_SECONDS",
    "engine.back_off": "relance.maintenance.execute:back_off",
    "expired_drops.check_claim": "relance.maintenance.removal.expired_drops:hold",
    "expired_drops.files_per_task": "relance.maintenance.removal.expired_drops:_PER_TASK",
    "expired_drops.is_never_named_twice": "relance.maintenance.removal.expired_drops:is_never_named_twice",
    "merge.back_off": "relance.maintenance.merging.merges:back_off",
    "merge.commit": "relance.maintenance.merging.merges:commit_merge",
    "merge.count_same_keys": "relance.maintenance.merging.merge_here:HereEngine.count_same_keys",
    "merge.work": "relance.maintenance.merging.merge_here:HereEngine.work",
    "orphans.purge_at_home": "relance.maintenance.removal.orphans:_purge_at_home",
    "pacing.monotonic": "relance.maintenance.removal.pacing:monotonic",
    "pacing.pacer": "relance.maintenance.removal.pacing:_pacer",
    "pacing.sleep": "relance.maintenance.removal.pacing:sleep",
    "plan.finish": "relance.maintenance.work:TablePlan.finish",
    "row_changes.prepare": "relance.maintenance.rows.row_changes:Rewrite.prepare",
    "row_changes.task_seconds": "relance.maintenance.rows.row_commit:TASK_SECONDS",
    "row_deletes.most_known_rows": "relance.maintenance.rows.row_deletes:_KNOWN",
    "row_deletes.sparse_share": "relance.maintenance.rows.row_deletes:_SPARSE",
    # Policy
    "history.add_actions": "relance.policy.pipeline.past_runs:History.add_actions",
    "history.add_run": "relance.policy.pipeline.past_runs:History.add_run",
    "history.many_fragments": "relance.policy.pipeline.past_runs:_MANY_FRAGMENTS",
    "history.old_versions": "relance.policy.pipeline.past_runs:_OLD_VERSIONS",
    "policy.gather_per_task": "relance.policy.pipeline.gather:_PER_TASK",
    "policy.gather_window": "relance.policy.pipeline.gather:_WINDOW",
    "policy.repeat": "relance.policy.pipeline.schedule:repeat",
    "policy.run_policy": "relance.policy:run_policy",
    "policy_lease.start": "relance.policy.pipeline.lease:Lease.start",
    "policy_lease.stop": "relance.policy.pipeline.lease:Lease.stop",
    "policy_lease.this_process": "relance.policy.pipeline.lease:this_process",
    "policy_run.begin_plan": "relance.policy.pipeline.runs:begin",
    "policy_run.end_plan": "relance.policy.pipeline.execution:end",
    "policy_run.execution": "relance.policy.pipeline.runs:Execution",
    "policy_plan.new_run": "relance.policy.pipeline.planning:new_run",
    "policy_steps.plan": "relance.policy.pipeline.steps:StepsJob.plan",
    "policy_steps.tables_together": "relance.policy.pipeline.steps:TOGETHER",
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
    "cli.is_somebody_there": "relance.cli.asking:is_somebody_there",
    # The explorer and its models
    "explorer.run_nonce": "relance.testing.explorer:Run.nonce",
    "explorer.start_nonce": "relance.testing.explorer:Start.nonce",
    "explorer.storage_discard": "relance.testing.stepped_storage:SteppedStorage.discard",
    "model_manifest.put": "relance.testing.model_manifest:ModelManifest._put",
    "model_manifest.settle": "relance.testing.model_manifest:ModelManifest._settle",
    "model_tables.require_written": "relance.testing.model_tables:require_written",
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
