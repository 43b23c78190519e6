"""Cast one array exactly: names, types and nullability as wanted, or an error that names the column.

A cast is planned once for a column and then called for each batch. Arrow's own cast takes care of single
values; nested arrays are rebuilt here, because it neither renames children nor looks for nulls in them,
and because the path of the part that is wrong belongs into the message. Values hidden below a null are
not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from relance.errors import TableSchemaValidationError
from relance.spark.types.fitting import fits
from relance.spark.types.paths import below
from relance.spark.types.reading import BLOB_EXTENSION, spark_type

Cast = Callable[[pa.Array], pa.Array]

_ALIGNMENT = 16
"""Lance, being Rust, wants the 128 bits of a decimal aligned so; Spark aligns to 8 bytes."""


def plan_cast(given: pa.DataType, wanted: pa.DataType, path: str, *, writing: bool) -> Cast | None:
    """Return what turns arrays of `given` into arrays of `wanted`, or None where nothing is to do.

    Writing refuses struct fields that `wanted` lacks, and aligns decimals; reading leaves such fields out.

    Raises:
        TableSchemaValidationError: the types do not fit without loss, or a part is missing.
        UnsupportedOperationError: Spark has no such type.
    """
    if is_blob_type(given):
        given = pa.large_binary()  # that is how blobs arrive when their bytes are asked for
    if given.equals(wanted, check_metadata=True) and not (writing and _holds_decimal(wanted)):
        return None
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        return _struct_cast(given, wanted, path, writing=writing)
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        return _map_cast(given, wanted, path, writing=writing)
    if _is_list(given) and _is_list(wanted):
        return _list_cast(given, wanted, path, writing=writing)
    return _value_cast(given, wanted, path)


def is_blob_type(arrow: pa.DataType) -> bool:
    """Tell whether it is the extension type that Lance gives to blob columns."""
    return isinstance(arrow, pa.BaseExtensionType) and arrow.extension_name == BLOB_EXTENSION


def check_nulls(array: pa.Array, field: pa.Field, path: str, *, hidden: int = 0) -> None:
    """Refuse nulls where `field` takes none; `hidden` of them are below a null parent and do not count.

    Raises:
        TableSchemaValidationError: there is one.
    """
    if not field.nullable and array.null_count > hidden:
        raise TableSchemaValidationError(
            f"column '{path}' is not nullable, but {array.null_count - hidden} values are null; "
            "fill them or leave out those rows"
        )


def misfit(path: str, given: pa.DataType, wanted: pa.DataType) -> TableSchemaValidationError:
    """Return the refusal of a type that does not go into another one without loss."""
    have, want = (spark_type(each, path).simpleString() for each in (given, wanted))
    kept = "" if pa.types.is_nested(wanted) or str(wanted) == want else f" (stored as {wanted})"
    return TableSchemaValidationError(
        f"column '{path}' is {have}, which does not fit into {want}{kept} without loss; "
        f"cast it to {want} first"
    )


def find_child(fields: Mapping[str, object], name: str, path: str) -> bool:
    """Tell whether `name` is one of the fields.

    Raises:
        TableSchemaValidationError: it is one of them in another case, which Lance takes for another column.
    """
    if name in fields:
        return True
    for other in fields:
        if other.casefold() == name.casefold():
            raise TableSchemaValidationError(
                f"column '{path}' is called '{other}' in the other schema, and Lance's column names are "
                "case-sensitive; rename it"
            )
    return False


def _is_list(arrow: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow)
    )


def _holds_decimal(arrow: pa.DataType) -> bool:
    if pa.types.is_decimal(arrow):
        return True
    return any(_holds_decimal(arrow.field(index).type) for index in range(arrow.num_fields))


def _struct_cast(given: pa.DataType, wanted: pa.DataType, path: str, *, writing: bool) -> Cast:
    fields, there = list(wanted), {field.name: index for index, field in enumerate(given)}
    if writing:
        known = {field.name: field for field in fields}
        for name in there:
            if not find_child(known, name, below(path, name)):
                raise TableSchemaValidationError(
                    f"column '{below(path, name)}' is not in the table; leave it out or add it first"
                )
    plans: list[tuple[pa.Field, str, int | None, Cast | None]] = []
    for field in fields:
        part = below(path, field.name)
        index = there[field.name] if find_child(there, field.name, part) else None
        if index is None and (not writing or not field.nullable):
            raise TableSchemaValidationError(f"column '{part}' is missing; add it or do not select it")
        cast = None if index is None else plan_cast(given[index].type, field.type, part, writing=writing)
        plans.append((field, part, index, cast))

    def run(array: pa.Array) -> pa.Array:
        children, built = array.flatten(), []
        for field, part, index, cast in plans:
            if index is None:
                built.append(pa.nulls(len(array), field.type))
                continue
            check_nulls(children[index], field, part, hidden=array.null_count)
            built.append(children[index] if cast is None else cast(children[index]))
        return pa.StructArray.from_arrays(built, fields=fields, mask=_mask(array))

    return run


def _map_cast(given: pa.DataType, wanted: pa.DataType, path: str, *, writing: bool) -> Cast:
    value_path = below(path, "value")
    keys = plan_cast(given.key_type, wanted.key_type, below(path, "key"), writing=writing)
    values = plan_cast(given.item_type, wanted.item_type, value_path, writing=writing)
    entries = pa.list_(pa.field("entries", pa.struct([given.key_field, given.item_field]), nullable=False))

    def run(array: pa.Array) -> pa.Array:
        # Arrow has few functions for maps and many for lists, which have the same buffers.
        as_list = pa.Array.from_buffers(
            entries, len(array), array.buffers()[:2], array.null_count, array.offset, [array.values]
        )
        offsets, flat = _parts(as_list, hide=True)
        key, value = flat.field(0), flat.field(1)
        check_nulls(value, wanted.item_field, value_path)
        return pa.MapArray.from_arrays(
            offsets,
            key if keys is None else keys(key),
            value if values is None else values(value),
            type=wanted,
            mask=_mask(array),
        )

    return run


def _list_cast(given: pa.DataType, wanted: pa.DataType, path: str, *, writing: bool) -> Cast:
    part = below(path, "element")
    child = plan_cast(given.value_type, wanted.value_type, part, writing=writing)
    size = wanted.list_size if pa.types.is_fixed_size_list(wanted) else None
    large = pa.types.is_large_list(wanted)
    kind, width = (pa.LargeListArray, pa.int64()) if large else (pa.ListArray, pa.int32())
    # Vectors become lists without a copy of their values.
    loose = pa.list_(given.value_field) if pa.types.is_fixed_size_list(given) else None

    def convert(values: pa.Array) -> pa.Array:
        check_nulls(values, wanted.value_field, part)
        return values if child is None else child(values)

    def run(array: pa.Array) -> pa.Array:
        array = array if loose is None else array.cast(loose)
        if size is not None:
            _check_sizes(array, size, path)
            vectors = pa.FixedSizeListArray.from_arrays(convert(array.flatten()), type=wanted)
            return vectors.take(_places(array)) if array.null_count else vectors
        offsets, values = _parts(array, hide=child is not None or not wanted.value_field.nullable)
        offsets = offsets if offsets.type == width else offsets.cast(width)
        return kind.from_arrays(offsets, convert(values), type=wanted, mask=_mask(array))

    return run


def _places(array: pa.Array) -> pa.Array:
    """Return for each row which of the rows that are not null it is; null for the others."""
    there = array.is_valid()
    return pc.if_else(there, pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1), None)


def _check_sizes(array: pa.Array, size: int, path: str) -> None:
    sizes = pc.min_max(pc.list_value_length(array)).as_py()
    wrong = [each for each in sizes.values() if each not in (None, size)]
    if wrong:
        raise TableSchemaValidationError(
            f"column '{path}' holds vectors of size {size}, but one has {wrong[0]} values; "
            "make them all the same size or declare another size"
        )


def _parts(array: pa.Array, *, hide: bool) -> tuple[pa.Array, pa.Array]:
    """Return offsets from 0 on and the values in them; with `hide` those of null lists are left out."""
    if hide and array.null_count:
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        start = pa.array([0], lengths.type)
        return pa.concat_arrays([start, pc.cumulative_sum(lengths)]), array.flatten()
    offsets = array.offsets
    first, end = offsets[0].as_py(), offsets[-1].as_py()
    if first or offsets.offset:
        offsets = pc.subtract(offsets, first)
    return offsets, array.values.slice(first, end - first)


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _value_cast(given: pa.DataType, wanted: pa.DataType, path: str) -> Cast:
    if pa.types.is_nested(given) or pa.types.is_nested(wanted):
        raise misfit(path, given, wanted)
    if not fits(spark_type(given, path), spark_type(wanted, path)):
        raise misfit(path, given, wanted)
    storage = wanted.storage_type if isinstance(wanted, pa.BaseExtensionType) else wanted
    cast = _storage_cast(given, storage)

    def run(array: pa.Array) -> pa.Array:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        try:
            array = cast(array)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
            raise TableSchemaValidationError(
                f"column '{path}' holds a value that does not fit into {wanted} without loss: {cause}"
            ) from cause
        return array if storage is wanted else pa.ExtensionArray.from_storage(wanted, array)

    return run


def _storage_cast(given: pa.DataType, wanted: pa.DataType) -> Cast:
    if pa.types.is_decimal(wanted) and given == wanted:
        return _aligned
    if pa.types.is_float16(wanted):
        return _halved
    same_unit = pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted) and given.unit == wanted.unit
    if same_unit:
        return lambda array: array.view(wanted)  # the instants are the same, only the zone shown differs
    return lambda array: array.cast(wanted)


def _aligned(array: pa.Array) -> pa.Array:
    data = array.buffers()[1]
    if data is None or data.address % _ALIGNMENT == 0:
        return array
    # Joining two arrays copies them into fresh memory, which Arrow aligns.
    return pa.concat_arrays([array, pa.nulls(0, array.type)])


def _halved(array: pa.Array) -> pa.Array:
    """Cast to half floats; Arrow rounds silently, so the way back is compared."""
    full = array.cast(pa.float32())
    half = full.cast(pa.float16())
    back = half.cast(pa.float32())
    kept = pc.or_(pc.equal(full, back), pc.is_nan(full))
    if pc.all(kept).as_py() is False:
        lost = full.filter(pc.invert(kept))[0]
        raise pa.ArrowInvalid(f"{lost} would be rounded")
    return half
