"""What Schemathesis does beside generating: bounded waits, and enough sense that calls also succeed.

Generated names never meet, and generated tokens are stale at once, so nearly every answer would be a refusal. Here most
well-formed requests get a name from a small set (one per kind of guard in openapi.rs), a token that rises, the lease
that was granted last, or the generation that was seen last. Requests that are wrong on purpose stay as they are, except that nobody waits for long.
"""

import random

import schemathesis
from schemathesis import GenerationMode

LONGEST_WAIT_MS = 20

RESOURCES = ["orders/1", "claimed", "issued", "observed", "once", "free", "ünïcode 100%"]
LOCKS = ["locks/a", "locks/b", "orders/1", "observed"]
KEYS = ["orders/1", "orders/1/lines", "claimed/a", "issued/a", "observed/a", "once/a", "free", "ünïcode 100%"]

chance = random.Random(7)
token = 100
leases = {}
generations = {}


def resource_of(key):
    """As the guards in openapi.rs map it."""
    parts = key.split("/")
    if parts[0] == "orders" and len(parts) > 1:
        return "/".join(parts[:2])
    return parts[0] if parts[0] in ("claimed", "issued", "observed", "once") else key


def next_token():
    """Mostly one that is new or current, sometimes a stale one."""
    global token
    token += chance.choice([0, 1, 1, 5])
    return str(token if chance.random() < 0.9 else token - 50)


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body if isinstance(case.body, dict) else {}
    if isinstance(body.get("wait_ms"), (int, float)):
        body["wait_ms"] = min(body["wait_ms"], LONGEST_WAIT_MS)
    meta = case.meta
    if meta is None or meta.generation.mode != GenerationMode.POSITIVE or chance.random() < 0.25:
        return
    names = KEYS if "/kv/" in case.path else LOCKS if "/locks/" in case.path else RESOURCES
    for name in case.path_parameters or {}:
        if "/outcomes/" not in case.path:
            case.path_parameters[name] = chance.choice(names)
    name = next(iter((case.path_parameters or {}).values()), None)
    present(case)
    if case.path == "/v1/claim/{resource}" and body:
        body["keys"] = [key for key in KEYS if resource_of(key) == name]
    elif case.path == "/v1/txn" and body:
        transact(body)
    elif "from" in body:
        body["from"] = generations.get(name, 0)
    elif case.path.startswith("/v1/locks/") and name in leases:
        if case.path.endswith("/renew") and body:
            body["lease"] = leases[name]
        elif case.method == "DELETE":
            case.query["lease"] = leases[name]


def present(case):
    """Headers that let a call through more often than not."""
    if case.path in ("/v1/kv/{key}", "/v1/claim/{resource}"):
        case.headers["fencing-token"] = next_token()
        case.headers["fencing-holder"] = chance.choice(["a#1", "a#1", "b#2"])
        case.headers["fencing-issuer"] = chance.choice(["etcd:1", "etcd:1", "etcd:1", "redis:2"])
    for name in ("If-Match", "If-None-Match", "idempotency-key"):
        if name in case.headers and chance.random() < 0.8:
            del case.headers[name]


def transact(body):
    """Keys of the small set, each once, and a token for each resource that is written."""
    keys = chance.sample(KEYS, len(KEYS))
    operations = body.get("then", [])[: len(keys)]
    if not operations and not body.get("if"):
        operations = [{"put": keys[0], "text": "1"}]
    for operation, key in zip(operations, keys):
        verb = next(verb for verb in ("put", "delete", "add", "get") if verb in operation)
        operation[verb] = key
    body["then"] = operations
    written = [operation[verb] for operation in operations for verb in ("put", "delete", "add") if verb in operation]
    body["tokens"] = {resource_of(key): {"token": next_token(), "issuer": "etcd:1"} for key in written}
    if chance.random() < 0.5:
        body["if"] = [{"key": keys[0], "at_most": 1000}] if written else []
    if not body["then"] and not body.get("if"):
        body["if"] = [{"key": keys[0], "absent": True}]


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code in (200, 201) and case.path.startswith("/v1/locks/{name}") and case.method == "POST":
        granted = response.json()
        leases[granted["name"]] = granted["lease"]
    if response.status_code in (200, 412) and "rotate" in case.path:
        name = next(iter((case.path_parameters or {}).values()), None)
        generations[name] = response.json().get("generation", 0)
