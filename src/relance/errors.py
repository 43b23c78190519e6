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

Each class is also the class of the same name in `lance_namespace.errors`, so handlers written for
that package keep working. Text starts with the prefix that native clients use, because lancedb
recognises errors by it.
"""

from __future__ import annotations

from typing import ClassVar

from lance_namespace import errors as spec


class RelanceError(spec.LanceNamespaceError):
    """Base of all errors raised here; `detail` is the message without its prefix."""

    prefix: ClassVar[str] = "Internal error: "

    def __init__(self, detail: str) -> None:
        super().__init__(f"{self.prefix}{detail}")
        self.detail = detail

    @property
    def spec_code(self) -> int:
        """The number the specification gives this error; differs from `code` for one class only."""
        return int(self.code)

    def __reduce__(self) -> tuple[type[RelanceError], tuple[str]]:
        return (type(self), (self.detail,))


class UnsupportedOperationError(RelanceError, spec.UnsupportedOperationError):
    prefix = "Unsupported: "


class NamespaceNotFoundError(RelanceError, spec.NamespaceNotFoundError):
    prefix = "Namespace not found: "


class NamespaceAlreadyExistsError(RelanceError, spec.NamespaceAlreadyExistsError):
    prefix = "Namespace already exists: "


class NamespaceNotEmptyError(RelanceError, spec.NamespaceNotEmptyError):
    prefix = "Namespace not empty: "


class TableNotFoundError(RelanceError, spec.TableNotFoundError):
    prefix = "Table not found: "


class TableAlreadyExistsError(RelanceError, spec.TableAlreadyExistsError):
    prefix = "Table already exists: "


class TableIndexNotFoundError(RelanceError, spec.TableIndexNotFoundError):
    prefix = "Table index not found: "


class TableIndexAlreadyExistsError(RelanceError, spec.TableIndexAlreadyExistsError):
    prefix = "Table index already exists: "


class TableTagNotFoundError(RelanceError, spec.TableTagNotFoundError):
    prefix = "Table tag not found: "


class TableTagAlreadyExistsError(RelanceError, spec.TableTagAlreadyExistsError):
    prefix = "Table tag already exists: "


class TransactionNotFoundError(RelanceError, spec.TransactionNotFoundError):
    prefix = "Transaction not found: "


class TableVersionNotFoundError(RelanceError, spec.TableVersionNotFoundError):
    prefix = "Table version not found: "


class TableColumnNotFoundError(RelanceError, spec.TableColumnNotFoundError):
    prefix = "Table column not found: "


class InvalidInputError(RelanceError, spec.InvalidInputError):
    prefix = "Invalid input: "


class ConcurrentModificationError(RelanceError, spec.ConcurrentModificationError):
    prefix = "Concurrent modification: "


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


class UnauthenticatedError(RelanceError, spec.UnauthenticatedError):
    prefix = "Unauthenticated: "


class ServiceUnavailableError(RelanceError, spec.ServiceUnavailableError):
    prefix = "Service unavailable: "


class OutcomeUnknownError(ServiceUnavailableError):
    """A write got no response: it may have happened, so nothing was undone."""


class InternalError(RelanceError, spec.InternalError):
    prefix = "Internal error: "


class KeyNotFoundError(InternalError):
    """A requested key is not in the store."""


class StorageError(InternalError):
    """The disk or the system under it failed; the message says what to do."""


class StorageFullError(StorageError):
    """The disk, or the quota on it, is full. What failed had no effect, or the error says so."""


class InvalidTableStateError(RelanceError, spec.InvalidTableStateError):
    prefix = "Invalid table state: "


class TableSchemaValidationError(RelanceError, spec.TableSchemaValidationError):
    prefix = "Table schema validation error: "


class ThrottlingError(RelanceError, spec.ThrottlingError):
    prefix = "Throttling: "


class TableBranchNotFoundError(RelanceError, spec.TableBranchNotFoundError):
    prefix = "Table branch not found: "


class TableBranchAlreadyExistsError(RelanceError, spec.TableBranchAlreadyExistsError):
    prefix = "Table branch already exists: "
