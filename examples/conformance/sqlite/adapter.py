#!/usr/bin/env python3
"""A fenced table in SQLite, for `fencepost conform exec`."""

import fcntl
import os
import sqlite3
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fencepost_adapter import mismatch, number, ok, serve, stale

# SQLite's integers are signed.
MOST = 2**63 - 1

SCHEMA = "CREATE TABLE IF NOT EXISTS fenced (res TEXT PRIMARY KEY, token INTEGER NOT NULL, value TEXT) WITHOUT ROWID"

# Check and change are one statement: a row changes only if its token is not newer.
WRITE = """
INSERT INTO fenced (res, token, value) VALUES (?, ?, ?)
ON CONFLICT (res) DO UPDATE SET token = excluded.token, value = excluded.value WHERE token <= excluded.token
"""
CLAIM = """
INSERT INTO fenced (res, token) VALUES (?, ?)
ON CONFLICT (res) DO UPDATE SET token = excluded.token WHERE token <= excluded.token
"""


class Refused(Exception):
    """A write of a batch was stale; the whole batch is rolled back."""


class Table:
    # SQLite ends with its process, so nothing happens after a kill.
    manifest = {"policy": "ge", "token_max": str(MOST), "kill": "everything"}

    def open(self, directory, instance):
        self.path = os.path.join(directory, "fenced.db")
        self.own = threading.local()
        # Threads queue here in order; SQLite's own waiting is for other processes.
        self.turn = threading.Lock()
        # Several instances begin at once, and SQLite does not wait for who else makes the file a WAL database.
        with open(self.path + ".made", "w") as made:
            fcntl.flock(made, fcntl.LOCK_EX)
            self.connection().execute("PRAGMA journal_mode = WAL")
            self.connection().execute(SCHEMA)

    def connection(self):
        if not hasattr(self.own, "connection"):
            connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            connection.execute("PRAGMA synchronous = FULL")
            self.own.connection = connection
        return self.own.connection

    def transaction(self, work):
        connection = self.connection()
        with self.turn:
            connection.execute("BEGIN IMMEDIATE")
            try:
                answer = work(connection)
                connection.execute("COMMIT")
                return answer
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @staticmethod
    def found(connection, res):
        row = connection.execute("SELECT token, value FROM fenced WHERE res = ?", (res,)).fetchone()
        return row or (None, None)

    def write(self, res, token, holder, value):
        token = number(token, MOST)

        def work(connection):
            if connection.execute(WRITE, (res, token, value)).rowcount == 0:
                return stale(self.found(connection, res)[0])
            return ok(high=token)

        return self.transaction(work)

    def read(self, res):
        high, value = self.found(self.connection(), res)
        return ok(value, high)

    def checked_read(self, res, token):
        token = number(token, MOST)
        high, value = self.found(self.connection(), res)
        return stale(high) if high is not None and token < high else ok(value, high)

    def claim(self, res, token, holder):
        token = number(token, MOST)

        def work(connection):
            claimed = connection.execute(CLAIM, (res, token)).rowcount
            high, value = self.found(connection, res)
            return ok(value, high) if claimed else stale(high)

        return self.transaction(work)

    def cas(self, res, token, holder, expect, value):
        token = number(token, MOST)

        def work(connection):
            high, current = self.found(connection, res)
            if high is not None and token < high:
                return stale(high)
            if current != expect:
                return mismatch(current)
            connection.execute(WRITE, (res, token, value))
            return ok(high=token)

        return self.transaction(work)

    def delete(self, res, token, holder):
        # The row stays, and with it the fence.
        return self.write(res, token, holder, None)

    def batch(self, writes):
        rows = [(write["res"], number(write.get("token"), MOST), write["value"]) for write in writes]

        def work(connection):
            for row in rows:
                if connection.execute(WRITE, row).rowcount == 0:
                    raise Refused
            return ok()

        try:
            return self.transaction(work)
        except Refused:
            return stale()


serve(Table())
