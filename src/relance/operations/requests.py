"""Requests as clients really send them: models, plain dictionaries, dictionaries that act like models."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from relance.config import StorageOptions
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
    """Check that no properties are given: a directory has nowhere to keep them.

    Raises:
        UnsupportedOperationError: there are some.
    """
    if properties:
        raise UnsupportedOperationError(
            f"{what} with properties requires a manifest: open the catalog with manifest_enabled=true"
        )


def with_options(response: RequestT, options: StorageOptions | None) -> RequestT:
    """Give a response its storage options in the form whose repr shows no secret."""
    if options is not None:
        # Straight into the fields: validation would copy them into a plain dictionary.
        response.__dict__["storage_options"] = options
        response.model_fields_set.add("storage_options")
    return response
