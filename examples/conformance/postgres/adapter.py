#!/usr/bin/env python3
"""A fenced table in PostgreSQL, for `fencepost conform exec`. Where the server is comes from PGHOST, PGPORT, PGUSER, …"""

import os
import sys
import threading

import psycopg

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fencepost_adapter import error, mismatch, number, ok, serve, stale, unknown

# A bigint is signed.
MOST = 2**63 - 1

SCHEMA = "CREATE TABLE IF NOT EXISTS fenced (res text PRIMARY KEY, token bigint NOT NULL, value text)"

# Check and change are one statement: the row is locked, and changes only if its token is not newer.
WRITE = """
INSERT INTO fenced (res, token, value) VALUES (%s, %s, %s)
ON CONFLICT (res) DO UPDATE SET token = excluded.token, value = excluded.value WHERE fenced.token <= excluded.token
"""
CLAIM = """
INSERT INTO fenced (res, token) VALUES (%s, %s)
ON CONFLICT (res) DO UPDATE SET token = excluded.token WHERE fenced.token <= excluded.token
"""
SEE = "SELECT token, value FROM fenced WHERE res = %s"


class Table:
    # The server goes on when this process is killed.
    manifest = {"policy": "ge", "token_max": str(MOST), "kill": "process", "mismatch_raises": True}

    def open(self, directory, instance):
        # Names of another run may be in the table already.
        self.run = os.path.basename(directory)
        self.own = threading.local()
        with self.connection().transaction():
            # Several instances may start at once.
            self.connection().execute("SELECT pg_advisory_xact_lock(7262)")
            self.connection().execute(SCHEMA)

    def connection(self):
        connection = getattr(self.own, "connection", None)
        if connection is None or connection.closed:
            self.own.connection = connection = psycopg.connect(autocommit=True)
        return connection

    def transaction(self, work):
        try:
            connection = self.connection()
        except psycopg.OperationalError as failure:
            return error(f"not connected: {failure}")
        try:
            with connection.transaction():
                return work(connection)
        except psycopg.Error as failure:
            if connection.broken:
                return unknown(repr(failure))
            # The server, or psycopg before it, has refused; the transaction was rolled back.
            return error(f"{type(failure).__name__}: {failure}")

    def name(self, res):
        return f"{self.run}/{res}"

    def found(self, connection, res):
        return connection.execute(SEE, (self.name(res),)).fetchone() or (None, None)

    def write(self, res, token, holder, value):
        token = number(token, MOST)

        def work(connection):
            if connection.execute(WRITE, (self.name(res), token, value)).rowcount == 0:
                return stale(self.found(connection, res)[0])
            return ok(high=token)

        return self.transaction(work)

    def read(self, res):
        def work(connection):
            high, value = self.found(connection, res)
            return ok(value, high)

        return self.transaction(work)

    def checked_read(self, res, token):
        token = number(token, MOST)

        def work(connection):
            high, value = self.found(connection, res)
            return stale(high) if high is not None and token < high else ok(value, high)

        return self.transaction(work)

    def claim(self, res, token, holder):
        token = number(token, MOST)

        def work(connection):
            claimed = connection.execute(CLAIM, (self.name(res), token)).rowcount
            high, value = self.found(connection, res)
            return ok(value, high) if claimed else stale(high)

        return self.transaction(work)

    def cas(self, res, token, holder, expect, value):
        token = number(token, MOST)

        def work(connection):
            # Nobody changes the row between this look and the write. Where there is no row yet, there is one afterwards.
            new = connection.execute(CLAIM + " RETURNING value", (self.name(res), token)).fetchone()
            if new is None:
                return stale(self.found(connection, res)[0])
            if new[0] != expect:
                return mismatch(new[0])
            connection.execute(WRITE, (self.name(res), token, value))
            return ok(high=token)

        return self.transaction(work)

    def delete(self, res, token, holder):
        # The row stays, and with it the fence.
        return self.write(res, token, holder, None)

    def batch(self, writes):
        rows = [(self.name(write["res"]), number(write.get("token"), MOST), write["value"]) for write in writes]

        def work(connection):
            # Everybody locks rows in the same order, so nobody waits in a circle.
            for row in sorted(rows, key=lambda row: row[0]):
                if connection.execute(WRITE, row).rowcount == 0:
                    raise psycopg.Rollback
            return ok()

        # A rollback ends the transaction without an answer.
        return self.transaction(work) or stale()


serve(Table())
