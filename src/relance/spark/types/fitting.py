"""Which Spark type goes into which other one with every value kept. Pure rules for single values."""

from __future__ import annotations

from pyspark.sql import types as sql

# The digits that hold every value of the type.
_DIGITS: dict[type[sql.DataType], int] = {
    sql.ByteType: 3,
    sql.ShortType: 5,
    sql.IntegerType: 10,
    sql.LongType: 19,
}
_INTEGERS = list(_DIGITS)

# The integers that a floating type holds exactly: a float has 24 bits for digits, a double 53.
_EXACT: dict[type[sql.DataType], tuple[type[sql.DataType], ...]] = {
    sql.FloatType: (sql.ByteType, sql.ShortType),
    sql.DoubleType: (sql.ByteType, sql.ShortType, sql.IntegerType, sql.FloatType),
}


def fits(given: sql.DataType, wanted: sql.DataType) -> bool:
    """Tell whether each value of `given` is a value of `wanted`; for types that are not nested."""
    if given == wanted:
        return True
    if isinstance(wanted, sql.DecimalType):
        return _fits_decimal(given, wanted)
    if type(given) in _INTEGERS and type(wanted) in _INTEGERS:
        return _INTEGERS.index(type(given)) <= _INTEGERS.index(type(wanted))
    if isinstance(given, sql.DayTimeIntervalType):
        # The fields an interval shows differ, the microseconds it holds do not.
        return isinstance(wanted, sql.DayTimeIntervalType)
    return type(given) in _EXACT.get(type(wanted), ())


def _fits_decimal(given: sql.DataType, wanted: sql.DecimalType) -> bool:
    room = wanted.precision - wanted.scale
    if isinstance(given, sql.DecimalType):
        return given.precision - given.scale <= room and given.scale <= wanted.scale
    return _DIGITS.get(type(given), room + 1) <= room
