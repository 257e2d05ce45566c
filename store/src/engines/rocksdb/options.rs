//! How RocksDB is set up.

use rocksdb::{BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, LogLevel, Options};

use crate::engines::EngineOptions;
use crate::engines::data_dir::DataDir;

/// Share of a write buffer used for its bloom filter: fences are read with every write, and rarely written.
const FILTER_RATIO: f64 = 0.02;

/// Number of level-0 tables at which writes stop until a compaction catches up.
const LEVEL_ZERO_STOP: i32 = 36;

pub(super) fn tuned(options: &EngineOptions, dir: &DataDir) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_hyper_clock_cache(options.cache_bytes, 0));
    table.set_bloom_filter(10.0, false);
    // To bound memory, indexes and filters share the cache with the data. A table holds a million fences:
    // unpartitioned, its index and filter would be megabytes each, and read again for every fence lookup.
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(4 << 10);
    table.set_pin_top_level_index_and_filter(true);

    // A stop leaves what a kill would leave, so there is one kind of recovery, and a stop does not wait for a flush.
    let mut tuned = Options::default().get_options_from_string("avoid_flush_during_shutdown=true").unwrap_or_default();
    // A marked directory without a database has lost it. Creating an empty one would lose every fence (G1).
    tuned.create_if_missing(!dir.is_marked());
    tuned.set_block_based_table_factory(&table);
    tuned.set_compression_type(DBCompressionType::Lz4);
    tuned.set_max_open_files(256);
    tuned.set_max_background_jobs(2);
    // The other half is for records that RocksDB does not have yet.
    let write_buffers = options.write_buffer_bytes / 2;
    tuned.set_write_buffer_size(write_buffers / 2);
    tuned.set_max_write_buffer_number(2);
    tuned.set_db_write_buffer_size(write_buffers);
    tuned.set_allow_concurrent_memtable_write(false);
    tuned.set_memtable_whole_key_filtering(true);
    tuned.set_memtable_prefix_bloom_ratio(FILTER_RATIO);
    // Writes are never slowed down, only stopped while a flush or compaction catches up. The saver waits for that.
    tuned.set_level_zero_slowdown_writes_trigger(LEVEL_ZERO_STOP);
    tuned.set_level_zero_stop_writes_trigger(LEVEL_ZERO_STOP);
    tuned.set_soft_pending_compaction_bytes_limit(0);
    tuned.set_hard_pending_compaction_bytes_limit(0);

    // Durability of format 1, whose commits are in RocksDB's log. A torn last record is a write that was never
    // acknowledged, and is dropped. Any other damage of the log is refused; the default mode would silently stop there and
    // lower fences.
    tuned.set_paranoid_checks(true);
    tuned.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    tuned.set_track_and_verify_wals_in_manifest(true);
    tuned.set_wal_bytes_per_sync(0);

    tuned.set_log_level(LogLevel::Warn);
    tuned.set_max_log_file_size(1 << 20);
    tuned.set_keep_log_file_num(2);
    tuned
}
