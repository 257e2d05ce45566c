-- The schema of the serializable dialect, format 1: the same tables as in schema.sql, and no functions. Each statement may be
-- executed again. `fencepost.` stands for the schema's name.

CREATE SCHEMA IF NOT EXISTS fencepost;

CREATE TABLE IF NOT EXISTS fencepost.records (
  key     bytea  NOT NULL PRIMARY KEY,
  version bigint NOT NULL,
  bytes   bytea  NOT NULL
);

CREATE SEQUENCE IF NOT EXISTS fencepost.commits;

CREATE TABLE IF NOT EXISTS fencepost.store (
  is_first boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (is_first),
  format   integer NOT NULL,
  cluster  bigint  NOT NULL,
  timeline text    NOT NULL
);
