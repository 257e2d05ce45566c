"""boto3, also in old versions, which misread the answer after an empty file (boto/botocore#3755)."""

import os
import time
from io import BytesIO

import boto3
from boto3.s3.transfer import TransferConfig

from app import BUCKET, ENDPOINT, LARGE, WHO, WORK, serve

s3 = boto3.client("s3", endpoint_url=ENDPOINT)


def put(name, data):
    # A file-like body: botocore asks with `Expect: 100-continue` before it sends one.
    status = s3.put_object(Bucket=BUCKET, Key=name, Body=BytesIO(data))["ResponseMetadata"]["HTTPStatusCode"]
    if status != 200:
        raise OSError(f"status {status}")


def after_an_empty_one():
    put("empty", b"")
    start = time.monotonic()
    put("after", b"after")
    if time.monotonic() - start > 5:
        raise TimeoutError("the write after an empty file waited for an answer that had been sent already")


def upload():
    path = os.path.join(WORK, "large")
    with open(path, "wb") as file:
        file.write(LARGE)
    s3.upload_file(path, BUCKET, "large", Config=TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20))


def delete_objects():
    for error in s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "to-delete-1"}, {"Key": "to-delete-2"}]}).get("Errors", []):
        raise OSError(f"{error['Code']}: {error['Message']}")


def prepare():
    for name in ["source", "to-delete", "to-delete-1", "to-delete-2"]:
        put(name, name.encode())


prepare()
serve(
    boto3.__version__,
    {
        # First and last, so that the zombie's first write comes on a connection that has just carried an empty file.
        "put_object": lambda: put("small", WHO.encode()),
        "upload_file, three parts": upload,
        "copy_object": lambda: s3.copy_object(Bucket=BUCKET, Key="copy", CopySource={"Bucket": BUCKET, "Key": "source"}) and None,
        "delete_object": lambda: s3.delete_object(Bucket=BUCKET, Key="to-delete") and None,
        "delete_objects": delete_objects,
        "put_object after an empty one": after_an_empty_one,
        "put_object, empty": lambda: put("empty", b""),
    },
    lambda: s3.get_object(Bucket=BUCKET, Key="small")["Body"].read().decode(),
    prepare,
)
