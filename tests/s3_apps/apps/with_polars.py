"""polars: Parquet and CSV files, written at once and streamed."""

import polars

from app import BUCKET, WHO, serve

frame = polars.DataFrame({"who": [WHO] * 1000, "number": range(1000)})
many = polars.DataFrame({"number": range(2_000_000)}).with_columns(polars.col("number").hash().alias("hash"))


def at(name):
    return f"s3://{BUCKET}/{name}"


def read():
    return polars.read_parquet(at("frame.parquet"))["who"].unique().to_list()


serve(
    polars.__version__,
    {
        "write_parquet": lambda: frame.write_parquet(at("frame.parquet")),
        "sink_parquet, several parts": lambda: many.lazy().sink_parquet(at("many.parquet"), compression="uncompressed"),
        "sink_csv": lambda: frame.lazy().sink_csv(at("frame.csv")),
        "write_ndjson": lambda: frame.lazy().sink_ndjson(at("frame.ndjson")),
    },
    read,
)
