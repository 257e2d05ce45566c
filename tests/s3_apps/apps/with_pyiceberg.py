"""pyiceberg: an Iceberg table, its catalogue in SQLite beside the bucket, which the fence does not see."""

import pyarrow
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog

from app import BUCKET, ENDPOINT, KEY, REGION, SECRET, SHARED, WHO, serve

catalogue = SqlCatalog(
    "trial",
    uri=f"sqlite:///{SHARED}/catalogue.db",
    warehouse=f"s3://{BUCKET}/warehouse",
    **{"s3.endpoint": ENDPOINT, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET, "s3.region": REGION},
)
rows = pyarrow.table({"who": [WHO], "number": [1]})


def table():
    return catalogue.load_table("trial.rows")


def create():
    catalogue.create_namespace_if_not_exists("trial")
    catalogue.create_table_if_not_exists("trial.rows", schema=rows.schema)


create()
serve(
    pyiceberg.__version__,
    {
        "append": lambda: table().append(rows),
        "overwrite": lambda: table().overwrite(rows),
        "append again": lambda: table().append(rows),
        "delete rows": lambda: table().delete(f"who != '{WHO}'" if WHO == "b" else "number = 1"),
        "create a table": lambda: catalogue.create_table(f"trial.made_by_{WHO}_{len(catalogue.list_tables('trial'))}", schema=rows.schema) and None,
    },
    lambda: sorted(table().scan().to_arrow()["who"].to_pylist()),
    lambda: table().append(rows),
)
