"""The methods of the namespace that remove old versions and validate tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from relance.catalog.context import Context, table_id_of
from relance.config import parse_duration
from relance.errors import InvalidInputError
from relance.operations.cleaning import auto_cleanup, cleanup, validation
from relance.operations.cleaning.auto_cleanup import AutoCleanup
from relance.operations.cleaning.cleanup import RemovalStats
from relance.operations.cleaning.policy import CleanupPolicy
from relance.operations.cleaning.validation import TableValidation

Id = Sequence[str]


class CleaningMethods:
    """The cleanup methods of a catalog."""

    _context: Context

    def cleanup_old_versions(
        self,
        id: Id,
        *,
        older_than: timedelta | str | None = None,
        before_version: int | None = None,
        retain_versions: int | None = None,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        dry_run: bool = False,
        rate_limit: int | None = None,
        policy: CleanupPolicy | None = None,
    ) -> RemovalStats:
        """Remove old versions of a table and the files only they need; by default, those over 14 days old.

        A version is removed only if every given rule allows it. The latest and tagged versions are kept.
        Pass either individual rules or a `policy`.

        Raises:
            TableNotFoundError: there is no such table, or it has no versions.
            InvalidTableStateError: a version to be removed is tagged.
            InvalidInputError: a rule is invalid, or combined with a policy.
        """
        rules = CleanupPolicy(
            before_timestamp=self._before(older_than),
            before_version=before_version,
            retain_versions=retain_versions,
            delete_unverified=delete_unverified,
            error_if_tagged_old_versions=error_if_tagged_old_versions,
            rate_limit=rate_limit,
        )
        if policy is not None and rules != CleanupPolicy():
            raise InvalidInputError("pass either a policy or individual rules, not both")
        table_id = table_id_of(self._context, id)
        return cleanup.cleanup_old_versions(self._context, table_id, policy or rules, dry_run=dry_run)

    def _before(self, age: timedelta | str | None) -> datetime | None:
        span = parse_duration(age, what="older_than") if isinstance(age, str) else age
        if span is not None and span < timedelta(0):
            raise InvalidInputError(f"older_than must not be negative, got {span}")
        return None if span is None else self._context.clock.now() - span

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
