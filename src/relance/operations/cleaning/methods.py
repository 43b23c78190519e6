"""The methods of the namespace that remove old versions and validate tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from relance.catalog.context import Context, table_id_of
from relance.operations.cleaning import auto_cleanup, cleanup, validation
from relance.operations.cleaning.auto_cleanup import AutoCleanup
from relance.operations.cleaning.cleanup import RemovalStats
from relance.operations.cleaning.policy import DEFAULT_AGE, CleanupPolicy
from relance.operations.cleaning.validation import TableValidation
from relance.units import parse_duration, require_duration

Id = Sequence[str]


class CleaningMethods:
    """The cleanup methods of a catalog."""

    _context: Context

    def cleanup_old_versions(
        self,
        id: Id,
        older_than: timedelta | str | None = None,
        delete_unverified: bool | None = None,
        error_if_tagged_old_versions: bool | None = None,
        *,
        dry_run: bool = False,
        look_for_clones: bool = True,
    ) -> RemovalStats:
        """Remove versions older than `older_than` (14 days by default) and the files only they need.

        The latest and tagged versions are kept. A tagged version of that age is an error, unless
        `error_if_tagged_old_versions` is false; files that no version refers to are kept for seven days,
        unless `delete_unverified` is true. Files that shallow clones in the root read are kept, too;
        `look_for_clones=False` spares the search in a root without clones. Other rules are in
        `cleanup_with_policy`.

        Raises:
            TableNotFoundError: there is no such table, or it has no versions.
            InvalidTableStateError: a version to be removed is tagged, or a table that may be a clone of this
                one cannot be read.
            InvalidInputError: `older_than` is not a duration.
        """
        policy = CleanupPolicy(
            before_timestamp=self._context.clock.now() - _age(older_than),
            delete_unverified=bool(delete_unverified),
            error_if_tagged_old_versions=error_if_tagged_old_versions is not False,
        )
        return self.cleanup_with_policy(id, policy, dry_run=dry_run, look_for_clones=look_for_clones)

    def cleanup_with_policy(
        self, id: Id, policy: CleanupPolicy, *, dry_run: bool = False, look_for_clones: bool = True
    ) -> RemovalStats:
        """Remove the versions that every rule of the policy lets go, and the files only they need.

        Without any rule, those older than 14 days. The latest and tagged versions are kept, and so are files
        that shallow clones in the root read.

        Raises:
            TableNotFoundError: there is no such table, or it has no versions.
            InvalidTableStateError: a version to be removed is tagged, or a table that may be a clone of this
                one cannot be read.
        """
        table_id = table_id_of(self._context, id)
        return cleanup.cleanup_old_versions(
            self._context, table_id, policy, dry_run=dry_run, look_for_clones=look_for_clones
        )

    def get_auto_cleanup(self, id: Id) -> AutoCleanup | None:
        """Return the automatic cleanup that commits to the table perform, or None if it is off."""
        return auto_cleanup.get_auto_cleanup(self._context, table_id_of(self._context, id))

    def set_auto_cleanup(self, id: Id, wanted: AutoCleanup | None) -> int:
        """Turn automatic cleanup by commits on or off, and return the version that records it."""
        return auto_cleanup.set_auto_cleanup(self._context, table_id_of(self._context, id), wanted)

    def validate_table(self, id: Id, *, every_version: bool = False) -> TableValidation:
        """Check that every file of the latest version, or of all versions, exists and can be opened."""
        table_id = table_id_of(self._context, id)
        return validation.validate_table(self._context, table_id, every_version=every_version)


def _age(older_than: timedelta | str | None) -> timedelta:
    if older_than is None:
        return DEFAULT_AGE
    if isinstance(older_than, str):
        return parse_duration(older_than, what="older_than")
    return require_duration(older_than, what="older_than")
