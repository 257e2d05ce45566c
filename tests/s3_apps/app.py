"""An application as a program: it reads names of operations, one a line, and answers each with a line of JSON.

It is a process of its own, and stays one while another holder takes over: what it has cached, and the connections that it keeps open, are those
of a real zombie."""

import json
import os
import sys

BUCKET = os.environ["BUCKET"]
ENDPOINT = os.environ["AWS_ENDPOINT_URL"]
HOST = ENDPOINT.removeprefix("http://")
KEY = os.environ["AWS_ACCESS_KEY_ID"]
SECRET = os.environ["AWS_SECRET_ACCESS_KEY"]
REGION = os.environ["AWS_REGION"]
WHO = os.environ["WHO"]  # the holder's name, to be found in the data
WORK = os.environ["WORK"]  # a directory of this process
SHARED = os.environ["SHARED"]  # a directory of all holders of one application
LARGE = bytes(range(256)) * 4096 * 12  # 12 MiB: more than one part


def serve(version, operations, read, prepare=lambda: None):
    """Answers until standard input ends. `prepare` makes what the operations remove or move."""
    # Libraries print what they like; the answers keep standard output to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    calls = {**operations, "read": read, "prepare": prepare}

    def answer(**members):
        print(json.dumps(members), file=answers, flush=True)

    answer(version=version, operations=list(operations))
    for line in sys.stdin:
        try:
            answer(value=calls[line.strip()](), error=None)
        except Exception as error:  # whatever the application reports is what we want to see
            answer(value=None, error=f"{type(error).__name__}: {error}"[:2000] or "an error without words")
