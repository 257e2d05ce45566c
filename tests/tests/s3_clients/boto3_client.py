"""Boto3 as people use it. The endpoint and the keys come from the environment, as boto3 reads them itself.

    boto3_client.py VERB ARGUMENTS…      the result goes to standard output, an exception to standard error
"""

import datetime
import json
import os
import sys

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

s3 = boto3.client("s3")


def put(file, bucket, key):
    with open(file, "rb") as body:
        s3.put_object(Bucket=bucket, Key=key, Body=body)


def put_in_parts(file, bucket, key):
    settings = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
    s3.upload_file(file, bucket, key, Config=settings)


def put_described(file, bucket, key, content_type, name, value):
    with open(file, "rb") as body:
        s3.put_object(Bucket=bucket, Key=key, Body=body, ContentType=content_type, Metadata={name: value})


def get(bucket, key, file):
    s3.download_file(bucket, key, file)


def describe(bucket, key):
    head = s3.head_object(Bucket=bucket, Key=key)
    print(json.dumps({"size": head["ContentLength"], "type": head["ContentType"], "metadata": head["Metadata"]}))


def copy(from_bucket, from_key, bucket, key):
    s3.copy_object(CopySource={"Bucket": from_bucket, "Key": from_key}, Bucket=bucket, Key=key)


def delete(bucket, key):
    s3.delete_object(Bucket=bucket, Key=key)


def delete_many(bucket, *keys):
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
    if "Errors" in answer:
        sys.exit(str(answer["Errors"]))


def list_all(bucket, prefix):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    print(json.dumps([found["Key"] for page in pages for found in page.get("Contents", [])]))


def list_all_v1(bucket, prefix):
    pages = s3.get_paginator("list_objects").paginate(Bucket=bucket, Prefix=prefix)
    print(json.dumps([found["Key"] for page in pages for found in page.get("Contents", [])]))


def look(bucket, prefix):
    found = s3.list_objects_v2(Bucket=bucket, Prefix=prefix, Delimiter="/")
    folders = [folder["Prefix"] for folder in found.get("CommonPrefixes", [])]
    print(json.dumps(folders + [found["Key"] for found in found.get("Contents", [])]))


def upload_tree(directory, bucket, prefix):
    for folder, _, files in os.walk(directory):
        for file in files:
            path = os.path.join(folder, file)
            s3.upload_file(path, bucket, prefix + os.path.relpath(path, directory))


def download_tree(bucket, prefix, directory):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    for found in (found for page in pages for found in page.get("Contents", [])):
        path = os.path.join(directory, found["Key"].removeprefix(prefix))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        s3.download_file(bucket, found["Key"], path)


def range_of(bucket, key, which):
    answer = s3.get_object(Bucket=bucket, Key=key, Range=which)
    print(json.dumps({"range": answer["ContentRange"], "text": answer["Body"].read().decode()}))


def put_if_absent(file, bucket, key):
    with open(file, "rb") as body:
        s3.put_object(Bucket=bucket, Key=key, Body=body, IfNoneMatch="*")


def begin_upload(file, bucket, key):
    """Begins a multipart upload of one part; what it takes to complete it is the result."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    with open(file, "rb") as body:
        part = s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=body)
    print(json.dumps([upload, part["ETag"]]))


def next_part(file, bucket, key, upload):
    with open(file, "rb") as body:
        s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=2, Body=body)


def complete_upload(bucket, key, upload, *etags):
    parts = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]}
    s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload=parts)


def abort_upload(bucket, key, upload):
    s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)


def list_uploads(bucket):
    print(json.dumps([upload["Key"] for upload in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]))


def presign(method, bucket, key, seconds, signature):
    """`s3` is what boto3 takes by itself for us-east-1: signature version 2."""
    client = boto3.client("s3", config=Config(signature_version=signature))
    arguments = {"Params": {"Bucket": bucket, "Key": key}, "ExpiresIn": int(seconds)}
    print(client.generate_presigned_url(method, **arguments))


OFFERED = """AbortMultipartUpload CompleteMultipartUpload CopyObject CreateBucket CreateMultipartUpload DeleteBucket DeleteObject
    DeleteObjects PutObject UploadPart UploadPartCopy""".split()


def filled(shape, name, known):
    """The least that boto3 sends for a shape."""
    if name in known:
        return known[name]
    match shape.type_name:
        case "structure":
            members = {member: shape.members[member] for member in shape.required_members}
            if shape.metadata.get("union"):
                members = dict(list(shape.members.items())[:1])
            return {member: filled(inner, member, known) for member, inner in members.items()}
        case "list":
            return [filled(shape.member, name, known)]
        case "map":
            return {}
        case "string":
            return shape.enum[0] if getattr(shape, "enum", None) else "x" * shape.metadata.get("min", 1)
        case "integer" | "long" | "float" | "double":
            return 1
        case "boolean":
            return True
        case "timestamp":
            return datetime.datetime(2026, 1, 1)
        case "blob":
            return b"not an object"


def change_in_every_other_way(bucket, key, source):
    """Every call that changes something and is not offered: its name, and the answer's status and code."""
    client = boto3.client("s3", config=Config(inject_host_prefix=False, retries={"total_max_attempts": 3}))
    known = {"Bucket": bucket, "Key": key, "RenameSource": f"/{bucket}/{source}"}
    answers = {}
    for operation in client.meta.service_model.operation_names:
        model = client.meta.service_model.operation_model(operation)
        if model.http["method"] not in ("PUT", "POST", "DELETE") or operation in OFFERED:
            continue
        try:
            answer = client._make_api_call(operation, filled(model.input_shape, "", known))
            answers[operation] = [answer["ResponseMetadata"]["HTTPStatusCode"], ""]
        except ClientError as error:
            answers[operation] = [error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]]
    print(json.dumps(answers))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
