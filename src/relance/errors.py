"""Every error Relance raises: the namespace spec's tree, with the spec's code and message prefix.

Grouped by what the caller does next:

    RelanceError
    ├── fix the request     UnsupportedOperation, InvalidInput, TableSchemaValidation
    ├── name something else NamespaceNotFound, NamespaceAlreadyExists, NamespaceNotEmpty,
    │                       TableNotFound, TableAlreadyExists, TableIndex…, TableTag…, TableBranch…,
    │                       TransactionNotFound, TableVersionNotFound, TableColumnNotFound
    ├── read again, retry   ConcurrentModification
    │                       ├── TableVersionAlreadyExists   (carries 12 as spec_code)
    │                       └── KeyExists, KeyChanged       (a conditional write lost)
    ├── wait, retry         Throttling
    ├── check the store     PermissionDenied, Unauthenticated, ServiceUnavailable
    │                       └── OutcomeUnknown              (the write may have happened)
    ├── look at the table   InvalidTableState
    ├── repair the store    Storage                         (an Internal: broken or read wrongly)
    │                       └── StorageFull                 (no space is left)
    └── report a bug        Internal
                            └── KeyNotFound                 (a required key is missing)

Each class has the exit code and the hint that the command line shows for it. An error that knows better what
to do next is given its own `hint` where it is raised.

Each class is also the class of the same name in `lance_namespace.errors`, so handlers written for
that package keep working. Text starts with the prefix that native clients use, because lancedb
recognises errors by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from relance import spec_errors
from relance.exits import Exit

if TYPE_CHECKING:
    from lance_namespace import errors as spec
else:
    spec = spec_errors.load()


class RelanceError(spec.LanceNamespaceError):
    """Base of all errors raised here; `detail` is the message without its prefix."""

    prefix: ClassVar[str] = "Internal error: "
    exit_code: Exit = Exit.FAILED
    """What a command of `relance` that fails with it exits with."""
    hint: str = "this is a bug: run the command again with --debug and report the output"
    """What to do next, in the words of the command line."""

    def __init__(self, detail: str, *, hint: str | None = None) -> None:
        super().__init__(f"{self.prefix}{detail}")
        self.detail = detail
        if hint is not None:
            self.hint = hint

    def __str__(self) -> str:
        return super().__str__() + str(vars(self).get("_in_python", ""))

    @property
    def spec_code(self) -> int:
        """The number the specification gives this error; differs from `code` for one class only."""
        return int(self.code)

    def __reduce__(self) -> tuple[Any, ...]:
        own = {name: vars(self)[name] for name in ("hint", "exit_code", "_in_python") if name in vars(self)}
        return (type(self), (self.detail,), own)


_E = TypeVar("_E", bound=RelanceError)


def for_python(error: _E, calls: str) -> _E:
    """End the text of an error with the calls that help callers in Python, who do not use commands."""
    vars(error)["_in_python"] = calls
    return error


class UnsupportedOperationError(RelanceError, spec.UnsupportedOperationError):
    prefix = "Unsupported: "
    exit_code = Exit.USAGE
    hint = "not supported by this catalog or environment: see relance doctor"


class NamespaceNotFoundError(RelanceError, spec.NamespaceNotFoundError):
    prefix = "Namespace not found: "
    exit_code = Exit.NOT_FOUND
    hint = "list namespaces: relance ls --tree"


class NamespaceAlreadyExistsError(RelanceError, spec.NamespaceAlreadyExistsError):
    prefix = "Namespace already exists: "
    exit_code = Exit.CONFLICT
    hint = "choose another name, or pass --exist-ok"


class NamespaceNotEmptyError(RelanceError, spec.NamespaceNotEmptyError):
    prefix = "Namespace not empty: "
    exit_code = Exit.CONFLICT
    hint = "pass --cascade to drop its contents too; undrop restores them"


class TableNotFoundError(RelanceError, spec.TableNotFoundError):
    prefix = "Table not found: "
    exit_code = Exit.NOT_FOUND
    hint = "list tables: relance ls --tree; list dropped tables: relance ls --dropped"


class TableAlreadyExistsError(RelanceError, spec.TableAlreadyExistsError):
    prefix = "Table already exists: "
    exit_code = Exit.CONFLICT
    hint = "choose another name; see what uses this one: relance status TABLE"


class TableIndexNotFoundError(RelanceError, spec.TableIndexNotFoundError):
    prefix = "Table index not found: "
    exit_code = Exit.NOT_FOUND
    hint = "list the indexes: relance show TABLE"


class TableIndexAlreadyExistsError(RelanceError, spec.TableIndexAlreadyExistsError):
    prefix = "Table index already exists: "
    exit_code = Exit.CONFLICT
    hint = "list the indexes: relance show TABLE"


class TableTagNotFoundError(RelanceError, spec.TableTagNotFoundError):
    prefix = "Table tag not found: "
    exit_code = Exit.NOT_FOUND
    hint = "list the tags: relance show TABLE"


class TableTagAlreadyExistsError(RelanceError, spec.TableTagAlreadyExistsError):
    prefix = "Table tag already exists: "
    exit_code = Exit.CONFLICT
    hint = "list the tags: relance show TABLE"


class TransactionNotFoundError(RelanceError, spec.TransactionNotFoundError):
    prefix = "Transaction not found: "
    exit_code = Exit.NOT_FOUND
    hint = "list the versions: relance versions TABLE"


class TableVersionNotFoundError(RelanceError, spec.TableVersionNotFoundError):
    prefix = "Table version not found: "
    exit_code = Exit.NOT_FOUND
    hint = "list the versions: relance versions TABLE"


class TableColumnNotFoundError(RelanceError, spec.TableColumnNotFoundError):
    prefix = "Table column not found: "
    exit_code = Exit.NOT_FOUND
    hint = "list the columns: relance show TABLE"


class InvalidInputError(RelanceError, spec.InvalidInputError):
    prefix = "Invalid input: "
    exit_code = Exit.USAGE
    hint = "fix the value above; see relance COMMAND --help"


class ConcurrentModificationError(RelanceError, spec.ConcurrentModificationError):
    prefix = "Concurrent modification: "
    exit_code = Exit.CONFLICT
    hint = "another client changed it at the same time: check its state and retry"


class TableVersionAlreadyExistsError(ConcurrentModificationError):
    """Another writer has this version; see design/0002 for why the code is 14 and `spec_code` 12."""

    @property
    def spec_code(self) -> int:
        return 12


class KeyExistsError(ConcurrentModificationError):
    """A create-only write found that the key exists."""


class KeyChangedError(ConcurrentModificationError):
    """A conditional replace found another version than expected, or none."""


class PermissionDeniedError(RelanceError, spec.PermissionDeniedError):
    prefix = "Permission denied: "
    exit_code = Exit.STORE
    hint = "check the credentials and their permissions: relance doctor"


class UnauthenticatedError(RelanceError, spec.UnauthenticatedError):
    prefix = "Unauthenticated: "
    exit_code = Exit.STORE
    hint = "check the credentials: relance doctor"


class ServiceUnavailableError(RelanceError, spec.ServiceUnavailableError):
    prefix = "Service unavailable: "
    exit_code = Exit.STORE
    hint = "check that the store is reachable: relance doctor"


class OutcomeUnknownError(ServiceUnavailableError):
    """A write got no response: it may have happened, so nothing was undone."""

    hint = "the change may have been applied: check before you retry"


class InternalError(RelanceError, spec.InternalError):
    prefix = "Internal error: "


class KeyNotFoundError(InternalError):
    """A requested key is not in the store."""


class StorageError(InternalError):
    """The disk or the system under it failed; the message says what to do."""

    exit_code = Exit.STORE
    hint = "repair the disk or raise the limit above, then retry: relance doctor"


class StorageFullError(StorageError):
    """The disk, or the quota on it, is full. What failed had no effect, or the error says so."""

    hint = "free space: relance drop --purge TABLE, relance purge, or as the message above says"


class InvalidTableStateError(RelanceError, spec.InvalidTableStateError):
    prefix = "Invalid table state: "
    exit_code = Exit.CONFLICT
    hint = "check its state: relance status TABLE, relance show TABLE"


class TableSchemaValidationError(RelanceError, spec.TableSchemaValidationError):
    prefix = "Table schema validation error: "
    exit_code = Exit.USAGE
    hint = "the rows must match the columns of the table: see relance show TABLE"


class ThrottlingError(RelanceError, spec.ThrottlingError):
    prefix = "Throttling: "
    exit_code = Exit.STORE
    hint = "retry later, or pass --rate-limit if the command supports it"


class TableBranchNotFoundError(RelanceError, spec.TableBranchNotFoundError):
    prefix = "Table branch not found: "
    exit_code = Exit.NOT_FOUND
    hint = "list the branches: relance show TABLE"


class TableBranchAlreadyExistsError(RelanceError, spec.TableBranchAlreadyExistsError):
    prefix = "Table branch already exists: "
    exit_code = Exit.CONFLICT
    hint = "list the branches: relance show TABLE"
