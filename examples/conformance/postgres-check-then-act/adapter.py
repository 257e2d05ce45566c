#!/usr/bin/env python3
"""Wrong on purpose: it looks at the token, then writes, and locks nothing in between. `fencepost conform` convicts it."""

import os
import sys
import threading

import psycopg

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fencepost_adapter import number, ok, serve, stale

MOST = 2**63 - 1

SCHEMA = "CREATE TABLE IF NOT EXISTS unfenced (res text PRIMARY KEY, token bigint NOT NULL, value text)"
SEE = "SELECT token, value FROM unfenced WHERE res = %s"
PUT = """
INSERT INTO unfenced (res, token, value) VALUES (%s, %s, %s)
ON CONFLICT (res) DO UPDATE SET token = excluded.token, value = excluded.value
"""


class Table:
    manifest = {"policy": "ge", "token_max": str(MOST)}

    def open(self, directory, instance):
        self.run = os.path.basename(directory)
        self.own = threading.local()
        with self.connection().transaction():
            self.connection().execute("SELECT pg_advisory_xact_lock(7263)")
            self.connection().execute(SCHEMA)

    def connection(self):
        if not hasattr(self.own, "connection"):
            self.own.connection = psycopg.connect(autocommit=True)
        return self.own.connection

    def write(self, res, token, holder, value):
        token, name = number(token, MOST), f"{self.run}/{res}"
        with self.connection().transaction():
            row = self.connection().execute(SEE, (name,)).fetchone()
            if row is not None and token < row[0]:
                return stale(row[0])
            # It has looked, and now it acts. Between the two a newer token may have come.
            self.connection().execute(PUT, (name, token, value))
            return ok(high=token)

    def read(self, res):
        row = self.connection().execute(SEE, (f"{self.run}/{res}",)).fetchone() or (None, None)
        return ok(row[1], row[0])


serve(Table())
