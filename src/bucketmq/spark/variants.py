"""Variants, Spark's type for values of any shape, refused: what Arrow has of them is their encoding, and looks like a
struct of bytes."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from bucketmq.errors import Invalid


def check_no_variant(schema: StructType, cure: str) -> None:
    """`Invalid` if a column is a variant, or has some inside."""
    for field in schema.fields:
        if _has_variants(field.dataType):
            raise Invalid(f"column {field.name!r} is or has a variant, which only Spark can read; {cure}")


def _has_variants(kind: DataType) -> bool:
    match kind:
        case StructType():
            return any(_has_variants(field.dataType) for field in kind.fields)
        case ArrayType():
            return _has_variants(kind.elementType)
        case MapType():
            return _has_variants(kind.valueType)
        case _:
            return isinstance(kind, VariantType)
