"""Requests as clients really send them: models, plain dictionaries, dictionaries that act like models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from lance_namespace import (
    BatchCommitTablesResponse,
    CommitTableResult,
    CreateTableResponse,
    DeclareTableResponse,
    DescribeTableResponse,
)
from pydantic import BaseModel, ValidationError

from relance.config import ENABLE_MANIFEST, StorageOptions
from relance.errors import InvalidInputError, UnsupportedOperationError

Fields = Mapping[str, Any]
"""A request as a dictionary."""

RequestT = TypeVar("RequestT", bound=BaseModel)
ResponseT = TypeVar("ResponseT", bound=BaseModel)
ModeT = TypeVar("ModeT", bound=StrEnum)


def as_request(model: type[RequestT], request: object) -> RequestT:
    """Return `request` as an instance of `model`; unknown keys are ignored, as the spec wants.

    Raises:
        InvalidInputError: it is not a request of this kind.
    """
    if isinstance(request, model):
        return request
    try:
        return model.model_validate(_fields(request))
    except ValidationError as cause:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in cause.errors()
        )
        raise InvalidInputError(f"invalid {model.__name__}: {problems}") from None


def _fields(request: object) -> Mapping[str, Any]:
    if isinstance(request, Mapping):
        return request
    if isinstance(request, BaseModel):
        return request.model_dump(by_alias=True)
    raise InvalidInputError(f"a request must be a model or a dictionary, got {type(request).__name__}")


class DictResponse(dict[str, Any]):
    """The response to a plain dictionary where native responds with one; the model's attributes work too."""

    def __init__(self, response: BaseModel) -> None:
        super().__init__(response.model_dump(exclude_none=True))
        self._response = response

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    def __reduce__(self) -> tuple[type[DictResponse], tuple[BaseModel]]:
        return (DictResponse, (self._response,))


def in_kind(request: object, response: ResponseT) -> ResponseT | DictResponse:
    """Return a response in the kind of its request: a dictionary for a dictionary."""
    return DictResponse(response) if isinstance(request, Mapping) else response


def parse_mode(text: str | None, modes: type[ModeT], *, default: ModeT) -> ModeT:
    """Return the mode that `text` names in any letter case, as snake_case or CamelCase.

    Raises:
        InvalidInputError: there is no such mode.
    """
    if text is None:
        return default
    plain = text.replace("_", "").lower()
    for mode in modes:
        if mode.value.replace("_", "") == plain:
            return mode
    raise InvalidInputError(f"unknown mode {text!r}: use one of {', '.join(modes)}")


def refuse_properties(properties: Mapping[str, str] | None, *, what: str) -> None:
    """Check that no properties are given: without a manifest, only a table that has data can keep them.

    Raises:
        UnsupportedOperationError: there are some.
    """
    if properties:
        raise UnsupportedOperationError(
            f"{what} with properties requires a manifest: open the catalog with manifest_enabled=true, or "
            "pass the properties to create_table",
            hint=ENABLE_MANIFEST,
        )


class _Vending(BaseModel):
    """A response whose texts show no storage options, and whose data carries them.

    pylance and lancedb read responses through the attributes and `model_dump()`, so these keep the values,
    in dictionaries whose repr shows none. `to_str()`, `to_json()` and `model_dump_json()` are for logs.
    """

    def model_post_init(self, context: Any, /) -> None:
        # Whoever builds a response again from its data gets one that hides as much.
        self.__dict__.update({name: _hiding(name, value) for name, value in self.__dict__.items()})

    def model_dump(self, **options: Any) -> dict[str, Any]:
        dumped: dict[str, Any] = _kept_secret(super().model_dump(**options))
        return dumped

    def model_dump_json(self, **options: Any) -> str:
        indent = options.pop("indent", None)
        return json.dumps(_hidden(self.model_dump(mode="json", **options)), indent=indent)

    def to_json(self) -> str:
        return json.dumps(_hidden(self.to_dict()))  # type: ignore[attr-defined]  # of the response's class


class VendingCreateTableResponse(_Vending, CreateTableResponse):
    """The response of create_table with storage options."""


class VendingDeclareTableResponse(_Vending, DeclareTableResponse):
    """The response of declare_table with storage options."""


class VendingDescribeTableResponse(_Vending, DescribeTableResponse):
    """The response of describe_table with storage options."""


class VendingCommitTableResult(_Vending, CommitTableResult):
    """One result of batch_commit_tables, which may hold a response with storage options."""


class VendingBatchCommitTablesResponse(_Vending, BatchCommitTablesResponse):
    """The response of batch_commit_tables, whose results may have storage options."""


_VENDING: dict[type[BaseModel], type[_Vending]] = {
    CreateTableResponse: VendingCreateTableResponse,
    DeclareTableResponse: VendingDeclareTableResponse,
    DescribeTableResponse: VendingDescribeTableResponse,
    CommitTableResult: VendingCommitTableResult,
    BatchCommitTablesResponse: VendingBatchCommitTablesResponse,
}


def with_options(response: ResponseT, options: StorageOptions | None) -> ResponseT:
    """Return a response with its storage options, of which no text shows a secret."""
    if options is None:
        return response
    response = vending(response)
    # Straight into the fields: validation would copy them into a plain dictionary.
    response.__dict__["storage_options"] = options
    response.model_fields_set.add("storage_options")
    return response


def vending(response: ResponseT) -> ResponseT:
    """Return the same response in the class whose texts show no storage options."""
    kind = _VENDING[type(response)]
    return kind.model_construct(response.model_fields_set, **dict(response))  # type: ignore[return-value]  # a subclass


def _hiding(name: str, value: Any) -> Any:
    """Return the value of a field such that its texts show no storage options."""
    if name == "storage_options" and isinstance(value, dict):
        return StorageOptions(value)
    if isinstance(value, list):
        return [_hiding("", each) for each in value]
    return vending(value) if type(value) in _VENDING else value


def _kept_secret(dumped: Any) -> Any:
    """Return dumped data whose storage options have a repr without values."""
    if isinstance(dumped, dict):
        return {
            key: StorageOptions(each)
            if key == "storage_options" and isinstance(each, dict)
            else _kept_secret(each)
            for key, each in dumped.items()
        }
    return [_kept_secret(each) for each in dumped] if isinstance(dumped, list) else dumped


def _hidden(dumped: Any) -> Any:
    """Return dumped data without the values of storage options."""
    if isinstance(dumped, StorageOptions):
        return dict.fromkeys(dumped, "***")
    if isinstance(dumped, dict):
        return {key: _hidden(each) for key, each in dumped.items()}
    return [_hidden(each) for each in dumped] if isinstance(dumped, list) else dumped
