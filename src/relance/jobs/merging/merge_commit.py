"""Make one version of what the tasks of a merge did, or remove it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import lance
from lance.fragment import FragmentMetadata

from relance.catalog.context import Context
from relance.errors import ConcurrentModificationError, OutcomeUnknownError, RelanceError
from relance.jobs.merging.merge_plan import MergePlan
from relance.jobs.merging.merge_tasks import Touched
from relance.lance_io import files_of
from relance.operations.staging.commit import landed_despite, landed_version
from relance.operations.staging.plan import JOB_MARK
from relance.operations.targets import Target, after_write, commit_transaction, open_for_writing

FENCE = (1 << 32) - 1
"""The number of a fragment that no table has, and that every merge which inserts says it removed.

Lance lets two transactions pass each other unless they touch the same fragment, so two merges that insert
the same new key would both commit. With this they never do: the second one is refused and planned again.
"""


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a merge did."""

    fragments: tuple[str, ...]
    """Of new rows, as JSON."""
    touched: tuple[Touched, ...]
    updated: int
    inserted: int
    deleted: int

    @property
    def is_empty(self) -> bool:
        return not (self.fragments or self.touched)


def commit_merge(context: Context, plan: MergePlan, work: Work) -> tuple[int, Target]:
    """Commit what the tasks did, and return the version; files of a failed commit are removed.

    Raises:
        ConcurrentModificationError: another client changed the same fragments, or merged; plan again.
        OutcomeUnknownError: the store gave no answer; the version may be there, so nothing is removed.
    """
    try:
        target = open_for_writing(context, plan.write.table_id.parts)
        _require_files(context, plan, target, work)
        return _commit(context, plan, target, work), target
    except OutcomeUnknownError:
        raise
    except RelanceError:
        with suppress(RelanceError):  # what failed first is what the caller is told
            if landed_version(context, plan.write) is None:
                discard(context, plan, work)
        raise


def look_again(context: Context, target: Target) -> None:
    """Have the catalog know the new version, and check that it is one of the table.

    Raises:
        ConcurrentModificationError: the table was dropped or renamed while it was merged into.
    """
    after_write(context, target.found, None)


def discard(context: Context, plan: MergePlan, work: Work) -> None:
    """Remove the files of a merge that was not committed."""
    context.storage.delete_many(_files(plan, work))


def _commit(context: Context, plan: MergePlan, target: Target, work: Work) -> int:
    gone = [each.fragment for each in work.touched if each.metadata is None]
    operation = lance.LanceOperation.Update(
        removed_fragment_ids=gone + ([FENCE] if work.inserted else []),
        updated_fragments=[
            FragmentMetadata.from_json(each.metadata) for each in work.touched if each.metadata
        ],
        new_fragments=[FragmentMetadata.from_json(each) for each in work.fragments],
        # No index knows the new values of rows, not even of those that keep their ids.
        fields_for_preserving_frag_bitmap=list(plan.fields),
        update_mode="rewrite_rows",
    )
    # Never a newer version: what others deleted since would come back.
    transaction = lance.Transaction(
        plan.table.version, operation, transaction_properties={JOB_MARK: plan.write.job}
    )
    try:
        committed = commit_transaction(context, target, transaction)
        return int(committed.version)
    except RelanceError as failure:
        # Lance may have met its own commit, of which the answer was lost.
        landed = landed_despite(context, plan.write, failure)
        if landed is None:
            raise
        return landed


def _require_files(context: Context, plan: MergePlan, target: Target, work: Work) -> None:
    """Check that this is still the table of the plan, with the files that were added to it."""
    if target.found.directory != plan.write.directory:
        raise ConcurrentModificationError(
            f"table id '{plan.table.id}' was moved or replaced during the merge; retry the merge"
        )
    files = _files(plan, work)
    missing = len(files) - len(context.storage.which_exist(files))
    if missing:
        raise ConcurrentModificationError(
            f"{missing} of {len(files)} files written by a merge into table id '{plan.table.id}' "
            "were deleted, possibly by a purge; retry the merge"
        )


def _files(plan: MergePlan, work: Work) -> list[str]:
    """Return the keys of all files that the tasks wrote."""
    directory = plan.write.directory
    data = [f"{directory}/data/{each}" for each in sorted(files_of(work.fragments))]
    return data + [f"{directory}/{path}" for each in work.touched if (path := _deletion_file(each))]


def _deletion_file(touched: Touched) -> str | None:
    if touched.metadata is None:
        return None
    metadata = FragmentMetadata.from_json(touched.metadata)
    return None if metadata.deletion_file is None else str(metadata.deletion_file.path(touched.fragment))
