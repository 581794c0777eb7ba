"""The columns of a task file, version 1, and what is taken in their place.

Columns: `task_id`, `family`, `difficulty`, `payload` (what the policy may see) and a column `hidden.<name>` for
each entry of the hidden half, all as JSON text. JSON text, because a parquet struct would give every row the union of
all rows' keys, and lists would come back as arrays. Columns of their own, so that a reader can leave them out.
"""

import pyarrow as pa

VERSION = 1
"""Of the files that are written, and the newest that can be read."""
VERSION_KEY = "skyrl_nat.schema_version"
"""In the file's metadata; a file without it is taken as version 1."""
SCHEMA = pa.schema(
    [
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("family", pa.string(), nullable=False),
        pa.field("difficulty", pa.int32(), nullable=False),
        pa.field("payload", pa.string(), nullable=False),
    ],
    metadata={VERSION_KEY: str(VERSION)},
)
"""What every file has; hidden columns come after it."""
HIDDEN_PREFIX = "hidden."


def schema_with(hidden_names: list[str]) -> pa.Schema:
    """Return the explicit schema of a file whose tasks have these entries in their hidden half."""
    fields = [*SCHEMA, *(pa.field(f"{HIDDEN_PREFIX}{name}", pa.string()) for name in hidden_names)]
    return pa.schema(fields, metadata=SCHEMA.metadata)


def task_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that are part of a task, in the order of the file; others are left out."""
    return [name for name in schema.names if name in SCHEMA.names or name.startswith(HIDDEN_PREFIX)]


def problems_of(schema: pa.Schema) -> list[str]:
    """Return why rows of this schema cannot be tasks; empty where they may be."""
    version = (schema.metadata or {}).get(VERSION_KEY.encode(), str(VERSION).encode()).decode(errors="replace")
    if not version.isdecimal() or not 1 <= int(version) <= VERSION:
        return [
            f"{VERSION_KEY} in its metadata must be 1 to {VERSION}, got {version}. Update skyrl-nat, or write the file "
            f"again as version {VERSION}"
        ]
    columns = task_columns(schema)
    missing = [name for name in SCHEMA.names if name not in columns]
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if missing or twice:
        return [f"has no column {name}" for name in missing] + [f"column {name} comes twice" for name in twice]
    return [
        f"column {name} must be {wanted}, got {schema.field(name).type}"
        for name in columns
        if (wanted := _wanted(name, stored_kind(schema.field(name).type)))
    ]


def stored_kind(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values: a dictionary's or an extension's own makes no difference."""
    if isinstance(kind, pa.BaseExtensionType):
        return stored_kind(kind.storage_type)
    return stored_kind(kind.value_type) if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are text."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_list(kind: pa.DataType) -> bool:
    """Return whether values are lists of any make."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _wanted(name: str, kind: pa.DataType) -> str:
    """Return what a column should be where its type does not fit; a column of nulls only is looked at row by row."""
    if pa.types.is_null(kind):
        return ""
    if name == "difficulty":
        fits = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        return "" if fits else "int32"
    if is_text(kind):
        return ""
    if name == "task_id":
        return "" if pa.types.is_integer(kind) else "string or integer (a number that was a float has lost digits)"
    if name == "family":
        return "string"
    is_nested = pa.types.is_struct(kind) or pa.types.is_map(kind) or (is_list(kind) and name != "payload")
    return "" if is_nested else "string of JSON"
