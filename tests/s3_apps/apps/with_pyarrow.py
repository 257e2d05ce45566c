"""pyarrow: files, directories and datasets through its own S3 file system (the AWS SDK for C++)."""

import itertools

import pyarrow
import pyarrow.dataset as datasets
from pyarrow import fs

from app import BUCKET, HOST, KEY, LARGE, REGION, SECRET, WHO, serve

numbers = itertools.count()
s3 = fs.S3FileSystem(access_key=KEY, secret_key=SECRET, endpoint_override=HOST, scheme="http", region=REGION)


def write(name, data):
    with s3.open_output_stream(f"{BUCKET}/{name}") as stream:
        stream.write(data)


def write_dataset():
    table = pyarrow.table({"who": [WHO] * 3, "day": [1, 2, 3]})
    datasets.write_dataset(
        table, f"{BUCKET}/data", filesystem=s3, format="parquet", partitioning=["day"], existing_data_behavior="overwrite_or_ignore"
    )


def prepare():
    write("files/to-move", b"move")
    write("files/to-delete", b"delete")
    write("folder/file", b"file")


def read():
    table = datasets.dataset(f"{BUCKET}/data", filesystem=s3, format="parquet", partitioning=["day"]).to_table()
    with s3.open_input_stream(f"{BUCKET}/files/small") as stream:
        return [sorted(table["who"].to_pylist()), stream.read().decode()]


prepare()
serve(
    pyarrow.__version__,
    {
        "write_dataset": write_dataset,
        "small file": lambda: write("files/small", WHO.encode()),
        "large file": lambda: write("files/large", LARGE),
        "create_dir": lambda: s3.create_dir(f"{BUCKET}/made-by-{WHO}-{next(numbers)}"),
        "move": lambda: s3.move(f"{BUCKET}/files/to-move", f"{BUCKET}/files/moved"),
        "delete_file": lambda: s3.delete_file(f"{BUCKET}/files/to-delete"),
        "delete_dir": lambda: s3.delete_dir(f"{BUCKET}/folder"),
    },
    read,
    prepare,
)
