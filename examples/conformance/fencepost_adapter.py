"""The exec protocol of `fencepost conform`, for adapters in Python. Copy this file beside your adapter.

    from fencepost_adapter import number, ok, serve, stale

    class Resource:
        manifest = {"policy": "ge"}

        def open(self, directory, instance): ...        # optional: connect; called once, before everything else
        def write(self, res, token, holder, value): ...  # and what you have of read, checked_read, claim, cas, delete, batch

    serve(Resource())

Methods are called by many threads at once, and return ok(), stale(), mismatch(), error() or unknown(). An exception
says nothing about what was done, so it becomes unknown(). Tokens come as they were sent, also malformed ones, missing
ones (None) and two at once (a list): hand them to your resource as they are, or check them with number().
"""

import json
import re
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

PROTO = 1
VERBS = {
    "write": ("res", "token", "holder", "value"),
    "read": ("res",),
    "checked_read": ("res", "token"),
    "claim": ("res", "token", "holder"),
    "cas": ("res", "token", "holder", "expect", "value"),
    "delete": ("res", "token", "holder"),
    "batch": ("writes",),
}
THREADS = 64
NOT_GIVEN = object()


class BadToken(Exception):
    """The token is not a number; nothing was done."""


def number(token, most=2**64 - 1):
    """The number a token stands for: decimal digits, no sign, no space, no zero in front, at most `most`."""
    if not isinstance(token, str) or not re.fullmatch("0|[1-9][0-9]{0,19}", token) or int(token) > most:
        raise BadToken
    return int(token)


def ok(value=NOT_GIVEN, high=None):
    """Done. Reads and claims give the value (None: there is none), and the fence if it is known."""
    answer = {"result": "ok"}
    if value is not NOT_GIVEN:
        answer["value"] = value
    if high is not None:
        answer["high"] = str(high)
    return answer


def stale(high=None):
    """Refused: the token is behind the fence. Nothing was changed."""
    return {"result": "stale"} if high is None else {"result": "stale", "high": str(high)}


def mismatch(current):
    """The value is not what a cas expected."""
    return {"result": "mismatch", "current": current}


def error(code):
    """Surely not done, now or later, for another reason than a stale token."""
    return {"result": "error", "definite": True, "code": code}


def unknown(why=""):
    """It may have been done, or may still be done, or not: a timeout, a lost connection."""
    return {"result": "unknown", "why": why}


def serve(resource):
    """Answers requests until there are no more, then returns."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    # The protocol owns standard output. What anybody prints goes to standard error.
    sys.stdout = sys.stderr
    printing = threading.Lock()

    def reply(request, answer):
        line = json.dumps({"id": request["id"], **answer}).encode() + b"\n"
        with printing:
            answers.write(line)
            answers.flush()

    def work(request):
        reply(request, perform(resource, request))

    first = json.loads(requests.readline())
    if first.get("op") != "init" or first.get("proto") != PROTO:
        reply(first, error(f"this adapter speaks version {PROTO} of the protocol"))
        return
    if hasattr(resource, "open"):
        resource.open(first["dir"], first["instance"])
    caps = [verb for verb in VERBS if hasattr(resource, verb)]
    reply(first, {"result": "ok", "caps": caps, **resource.manifest})
    with ThreadPoolExecutor(THREADS) as pool:
        for line in requests:
            pool.submit(work, json.loads(line))


def perform(resource, request):
    """The answer to one request."""
    verb = request["op"]
    if not hasattr(resource, verb):
        return {"result": "unsupported"}
    try:
        return getattr(resource, verb)(*(request.get(field) for field in VERBS[verb]))
    except BadToken:
        return error("bad-token")
    except Exception as failure:
        traceback.print_exc()
        return unknown(repr(failure))
