-- The schema of the engine `postgres`, format 1. `fencepost.` stands for the schema's name, `@LOCK@` for a number made from it.
-- Functions carry the format in their names, so that gateways of two versions can serve side by side. They plan their statements
-- once: with arrays the server would plan them anew in each call, which takes longer than the commit.

CREATE SCHEMA IF NOT EXISTS fencepost;

CREATE TABLE fencepost.records (
  key     bytea  NOT NULL PRIMARY KEY,
  version bigint NOT NULL,
  bytes   bytea  NOT NULL
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

-- Values are not compressed, and their length is read without reading them.
ALTER TABLE fencepost.records ALTER COLUMN bytes SET STORAGE EXTERNAL;

CREATE SEQUENCE fencepost.commits AS bigint CACHE 1;

-- One row: the format, and the history that the records belong to.
CREATE TABLE fencepost.store (
  is_first boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (is_first),
  format   integer NOT NULL,
  cluster  bigint  NOT NULL,
  timeline text    NOT NULL
);

-- Fails if this server has another history than the gateway knows, or is a standby. NULL: any history is accepted.
CREATE FUNCTION fencepost.check_1(history text) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog AS $$
BEGIN
  IF pg_is_in_recovery() THEN
    RAISE EXCEPTION 'this server is a standby now' USING ERRCODE = 'FP003';
  ELSIF history <> left(pg_walfile_name(pg_current_wal_lsn()), 8) THEN
    RAISE EXCEPTION 'another server was promoted' USING ERRCODE = 'FP003';
  END IF;
END $$;

-- Records as of one instant: the function is stable, so all its statements see the snapshot of the call. `most` says how many
-- bytes a record may have to be returned with them: -1 for none, NULL for any number. Bounded records take from `spare`.
-- `history` is the timeline that the gateway knows; behind a pooler, the server may be another one than before.
CREATE FUNCTION fencepost.load_1(keys bytea[], most bigint[], spare bigint, history text)
RETURNS TABLE (at bigint, version bigint, size bigint, bytes bytea)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  one record;
BEGIN
  PERFORM fencepost.check_1(history);
  IF spare <= 0 THEN
    RETURN QUERY SELECT k.at, r.version, octet_length(r.bytes)::bigint, CASE WHEN k.most IS NULL THEN r.bytes END
      FROM unnest(keys, most) WITH ORDINALITY AS k(key, most, at) JOIN fencepost.records r ON r.key = k.key;
    RETURN;
  END IF;
  FOR one IN
    SELECT k.at AS place, k.key, k.most, r.version AS found, octet_length(r.bytes)::bigint AS length
      FROM unnest(keys, most) WITH ORDINALITY AS k(key, most, at) JOIN fencepost.records r ON r.key = k.key ORDER BY k.at
  LOOP
    at := one.place; version := one.found; size := one.length; bytes := NULL;
    IF one.most IS NULL OR (one.length <= one.most AND one.length <= spare) THEN
      SELECT r.bytes INTO bytes FROM fencepost.records r WHERE r.key = one.key;
      IF one.most IS NOT NULL THEN spare := spare - one.length; END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- Records in key order. A last row without a key says that a limit was reached before the end.
CREATE FUNCTION fencepost.scan_1(
  start bytea, inclusive boolean, before bytea, most_records bigint, most_bytes bigint, history text
)
RETURNS TABLE (key bytea, version bigint, bytes bytea)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog SET enable_seqscan = off SET enable_sort = off AS $$
DECLARE
  one record; taken bigint := 0; counted bigint := 0;
BEGIN
  PERFORM fencepost.check_1(history);
  FOR one IN
    SELECT r.key, r.version, r.bytes FROM fencepost.records r
      WHERE r.key >= start AND (inclusive OR r.key > start) AND (before IS NULL OR r.key < before) ORDER BY r.key
  LOOP
    IF counted = most_records OR taken > most_bytes THEN
      key := NULL; version := NULL; bytes := NULL;
      RETURN NEXT;
      RETURN;
    END IF;
    counted := counted + 1;
    taken := taken + octet_length(one.key) + octet_length(one.bytes);
    key := one.key; version := one.version; bytes := one.bytes;
    RETURN NEXT;
  END LOOP;
END $$;

-- One commit: compares, then writes all or nothing. Returns the version of change 0, or NULL if a compared version differs.
-- Every array is sorted by key and names each key once.
--   shared  compared by every commit, changed almost never: the store's own record
--   held    compared as present; with NULL: only locked, because it is written and locks must be taken in the order of keys
--   absent  compared as absent, not written
--   fresh   compared as absent, written
--   put     every other write
--   gone    removals
--   history the timeline that the gateway knows
--   standby whether a synchronous standby must have the commit
CREATE FUNCTION fencepost.apply_1(
  shared bytea[], shared_want bigint[], held bytea[], held_want bigint[], absent bytea[],
  fresh bytea[], fresh_at integer[], fresh_bytes bytea[], put bytea[], put_at integer[], put_bytes bytea[], gone bytea[],
  history text, standby boolean
) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  first bigint; hits bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'fencepost needs the isolation READ COMMITTED, and this role or database asks for %',
      upper(current_setting('transaction_isolation')) USING ERRCODE = 'FP002';
  END IF;
  PERFORM fencepost.check_1(history);
  IF standby AND current_setting('synchronous_standby_names') = '' THEN
    RAISE EXCEPTION 'durability=standby, and no standby is synchronous' USING ERRCODE = 'FP004';
  END IF;
  PERFORM set_config('lock_timeout', '2s', true);
  PERFORM set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
  -- 1. A commit that changes the store's own record takes this lock exclusively.
  PERFORM pg_advisory_xact_lock_shared(1179403344, @LOCK@);
  SELECT count(*) INTO hits FROM unnest(shared, shared_want) AS c(key, want)
    JOIN fencepost.records r ON r.key = c.key AND r.version = c.want;
  IF hits <> cardinality(shared) THEN RETURN NULL; END IF;
  -- 2. Every row that exists and is compared or written is locked in key order, and looked at as it is now. The version is
  --    compared in FILTER: in WHERE it would move below the lock.
  SELECT count(*) FILTER (WHERE l.version = l.want) INTO hits FROM (
    SELECT r.version, c.want FROM unnest(held, held_want) AS c(key, want)
      JOIN fencepost.records r ON r.key = c.key ORDER BY c.key FOR NO KEY UPDATE OF r) l;
  IF hits <> cardinality(held) - cardinality(array_positions(held_want, NULL)) THEN RETURN NULL; END IF;
  first := nextval('fencepost.commits') << 16;
  -- 3. What must be absent becomes a row of this transaction, or it exists.
  IF cardinality(absent) + cardinality(fresh) > 0 THEN
    INSERT INTO fencepost.records
      SELECT n.key, first + n.at, n.bytes FROM (
        SELECT * FROM unnest(fresh, fresh_at, fresh_bytes) AS f(key, at, bytes)
        UNION ALL SELECT a.key, 0, '\x'::bytea FROM unnest(absent) AS a(key)) n
      ORDER BY n.key ON CONFLICT (key) DO NOTHING;
    GET DIAGNOSTICS hits = ROW_COUNT;
    IF hits <> cardinality(absent) + cardinality(fresh) THEN
      RAISE EXCEPTION 'a record that was absent is there' USING ERRCODE = 'FP001';
    END IF;
    DELETE FROM fencepost.records WHERE key = ANY (absent);
  END IF;
  -- 4. The writes.
  IF cardinality(put) > 0 THEN
    INSERT INTO fencepost.records
      SELECT p.key, first + p.at, p.bytes FROM unnest(put, put_at, put_bytes) AS p(key, at, bytes) ORDER BY p.key
      ON CONFLICT (key) DO UPDATE SET version = excluded.version, bytes = excluded.bytes;
  END IF;
  IF cardinality(gone) > 0 THEN DELETE FROM fencepost.records WHERE key = ANY (gone); END IF;
  RETURN first;
END $$;

-- The same for a commit that changes what is shared: it waits for every commit under way, and later ones wait for it.
CREATE FUNCTION fencepost.apply_alone_1(
  shared bytea[], shared_want bigint[], held bytea[], held_want bigint[], absent bytea[],
  fresh bytea[], fresh_at integer[], fresh_bytes bytea[], put bytea[], put_at integer[], put_bytes bytea[], gone bytea[],
  history text, standby boolean
) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  PERFORM set_config('lock_timeout', '10s', true);
  PERFORM pg_advisory_xact_lock(1179403344, @LOCK@);
  RETURN fencepost.apply_1(shared, shared_want, held, held_want, absent, fresh, fresh_at, fresh_bytes, put, put_at, put_bytes, gone,
    history, standby);
END $$;
