"""deltalake (delta-rs): a table whose commits are conditional writes."""

import deltalake
import pyarrow

from app import BUCKET, WHO, serve

TABLE = f"s3://{BUCKET}/table"
OPTIONS = {"AWS_ALLOW_HTTP": "true", "aws_conditional_put": "etag"}


def table():
    return deltalake.DeltaTable(TABLE, storage_options=OPTIONS)


def write(mode):
    rows = pyarrow.table({"who": [WHO], "number": [1]})
    deltalake.write_deltalake(TABLE, rows, mode=mode, storage_options=OPTIONS)


def vacuum():
    # A vacuum of nothing writes nothing: there are files of overwritten versions.
    removed = table().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    if not removed:
        raise AssertionError("there was nothing to vacuum")


def prepare():
    # Something to vacuum, and two small files to compact.
    write("overwrite")
    write("overwrite")
    write("append")


def read():
    return sorted(table().to_pyarrow_table()["who"].to_pylist())


serve(
    deltalake.__version__,
    {
        "overwrite": lambda: write("overwrite"),
        "append": lambda: write("append"),
        "compact": lambda: table().optimize.compact() and None,
        "delete rows": lambda: table().delete("number = 1") and None,
        "append again": lambda: write("append"),
        "checkpoint": lambda: table().create_checkpoint(),
        "vacuum": vacuum,
    },
    read,
    prepare,
)
