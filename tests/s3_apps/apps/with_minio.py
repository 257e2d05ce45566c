"""minio-py: objects, parts, copies and removals."""

from io import BytesIO

import minio
from minio.commonconfig import ComposeSource, CopySource
from minio.deleteobjects import DeleteObject

from app import BUCKET, HOST, KEY, LARGE, REGION, SECRET, WHO, serve

client = minio.Minio(HOST, access_key=KEY, secret_key=SECRET, secure=False, region=REGION)


def put(name, data, **options):
    client.put_object(BUCKET, name, BytesIO(data), len(data), **options)


def remove_objects():
    for error in client.remove_objects(BUCKET, [DeleteObject("to-delete-1"), DeleteObject("to-delete-2")]):
        raise OSError(f"{error.code}: {error.message}")


def prepare():
    for name in ["source", "to-delete", "to-delete-1", "to-delete-2"]:
        put(name, name.encode())


prepare()
serve(
    minio.__version__,
    {
        "put_object": lambda: put("small", WHO.encode()),
        "put_object, empty": lambda: put("empty", b""),
        "put_object, three parts": lambda: put("large", LARGE, part_size=5 << 20),
        "copy_object": lambda: client.copy_object(BUCKET, "copy", CopySource(BUCKET, "source")) and None,
        "compose_object": lambda: client.compose_object(BUCKET, "composed", [ComposeSource(BUCKET, "large"), ComposeSource(BUCKET, "source")]) and None,
        "remove_object": lambda: client.remove_object(BUCKET, "to-delete"),
        "remove_objects": remove_objects,
    },
    lambda: client.get_object(BUCKET, "small").read().decode(),
    prepare,
)
