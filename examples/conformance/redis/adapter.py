#!/usr/bin/env python3
"""A fenced hash in Redis, for `fencepost conform exec`. The server is at REDIS (host:port), by default at $CONFORM_PORT."""

import os
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fencepost_adapter import mismatch, number, ok, serve, stale

# Redis runs a script as one step. Lua's numbers are floating point, so tokens are compared as digits.
COMMON = """
local function behind(token, fence)
  if not fence then return false end
  if #token ~= #fence then return #token < #fence end
  return token < fence
end
local function see(key) return redis.call('HGET', key, 'token'), redis.call('HGET', key, 'value') end
local function put(key, token, value)
  redis.call('HSET', key, 'token', token)
  if value then redis.call('HSET', key, 'value', value) else redis.call('HDEL', key, 'value') end
end
"""
WRITE = COMMON + """
local fence = see(KEYS[1])
if behind(ARGV[1], fence) then return {'stale', fence} end
put(KEYS[1], ARGV[1], ARGV[2])
return {'ok', ARGV[1]}
"""
READ = COMMON + """
local fence, value = see(KEYS[1])
if ARGV[1] and behind(ARGV[1], fence) then return {'stale', fence} end
return {'ok', fence, value}
"""
CLAIM = COMMON + """
local fence, value = see(KEYS[1])
if behind(ARGV[1], fence) then return {'stale', fence} end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
return {'ok', ARGV[1], value}
"""
CAS = COMMON + """
local fence, value = see(KEYS[1])
if behind(ARGV[1], fence) then return {'stale', fence} end
if value ~= (ARGV[3] or false) then return {'mismatch', false, value} end
put(KEYS[1], ARGV[1], ARGV[2])
return {'ok', ARGV[1]}
"""
BATCH = COMMON + """
local fences = {}
for i, key in ipairs(KEYS) do
  local token = ARGV[2 * i - 1]
  if behind(token, fences[key] or see(key)) then return {'stale'} end
  fences[key] = token
end
for i, key in ipairs(KEYS) do put(key, ARGV[2 * i - 1], ARGV[2 * i]) end
return {'ok'}
"""


class Connection:
    """As much of Redis' protocol as is needed here."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.socket.makefile("rb")

    def call(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        return self.answer()

    def answer(self):
        line = self.answers.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("Redis has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self.answers.read(int(rest) + 2)[:-2].decode()
        if kind == b"-":
            raise RuntimeError(rest.decode())
        return rest.decode()


class Hashes:
    def __init__(self):
        # A server that the suite has started is killed with this process; any other goes on.
        started = "REDIS" not in os.environ
        self.manifest = {"policy": "ge", "kill": "everything" if started else "process"}
        self.address = os.environ.get("REDIS", "127.0.0.1:" + os.environ.get("CONFORM_PORT", "6379"))

    def open(self, directory, instance):
        # Names of another run may be there already.
        self.run = os.path.basename(directory)
        self.own = threading.local()
        self.connection().call("PING")

    def connection(self):
        if getattr(self.own, "connection", None) is None:
            self.own.connection = Connection(self.address)
        return self.own.connection

    def run_script(self, script, names, *arguments):
        connection = self.connection()
        # After an exception nobody knows what the connection would say next.
        self.own.connection = None
        keys = [f"{self.run}/{name}" for name in names]
        result = connection.call("EVAL", script, len(keys), *keys, *arguments)
        self.own.connection = connection
        return result + [None] * (3 - len(result))

    def write(self, res, token, holder, value):
        return self.simple(WRITE, res, number(token), value)

    def delete(self, res, token, holder):
        # The hash stays with its token, and with it the fence.
        return self.simple(WRITE, res, number(token))

    def simple(self, script, res, *arguments):
        word, high, value = self.run_script(script, [res], *arguments)
        if word == "mismatch":
            return mismatch(value)
        return ok(high=high) if word == "ok" else stale(high)

    def read(self, res):
        return self.reading(READ, res)

    def checked_read(self, res, token):
        return self.reading(READ, res, number(token))

    def claim(self, res, token, holder):
        return self.reading(CLAIM, res, number(token))

    def reading(self, script, res, *arguments):
        word, high, value = self.run_script(script, [res], *arguments)
        return ok(value, high) if word == "ok" else stale(high)

    def cas(self, res, token, holder, expect, value):
        return self.simple(CAS, res, number(token), value, *([] if expect is None else [expect]))

    def batch(self, writes):
        names = [write["res"] for write in writes]
        arguments = [part for write in writes for part in (number(write.get("token")), write["value"])]
        word, _, _ = self.run_script(BATCH, names, *arguments)
        return ok() if word == "ok" else stale()


serve(Hashes())
