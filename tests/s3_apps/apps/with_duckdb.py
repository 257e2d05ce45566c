"""DuckDB with its extension httpfs (from the package duckdb-extension-httpfs): COPY to Parquet and CSV."""

from importlib import resources

import duckdb

from app import BUCKET, HOST, KEY, REGION, SECRET, WHO, serve

(extension,) = resources.files("duckdb_extension_httpfs").joinpath(f"extensions/v{duckdb.__version__}").glob("*.duckdb_extension")
database = duckdb.connect()
database.execute(f"LOAD '{extension}'")
database.execute(
    f"CREATE SECRET (TYPE s3, KEY_ID '{KEY}', SECRET '{SECRET}', REGION '{REGION}', ENDPOINT '{HOST}', URL_STYLE 'path', USE_SSL false)"
)
database.execute(f"CREATE TABLE rows AS SELECT '{WHO}' AS who, number, number % 4 AS part FROM range(1000) AS all_rows(number)")


def copy(query, name, options):
    database.execute(f"COPY ({query}) TO 's3://{BUCKET}/{name}' ({options})")


def read():
    return database.execute(f"SELECT DISTINCT who FROM read_parquet('s3://{BUCKET}/rows.parquet')").fetchall()


serve(
    duckdb.__version__,
    {
        "COPY to Parquet": lambda: copy("FROM rows", "rows.parquet", "FORMAT parquet"),
        "COPY to CSV": lambda: copy("FROM rows", "rows.csv", "FORMAT csv"),
        "COPY of many rows": lambda: copy("SELECT number, hash(number) FROM range(3000000) AS many(number)", "many.parquet", "FORMAT parquet"),
        "COPY by partition": lambda: copy("FROM rows", "parts", "FORMAT parquet, PARTITION_BY part, OVERWRITE_OR_IGNORE"),
    },
    read,
)
