//! The list of cases.

use std::pin::Pin;

use fencepost_store::engines::EngineKind;

use crate::bench::Bench;
use crate::{
    commits, concurrency, durability, etcd_members, etcd_own, mutants, postgres_own, scans, shared, versions, wants,
};

/// Which engines a case is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    AnyEngine,
    Durability,
    /// Several gateways over the same records.
    Sharing,
    /// The engine `etcd`.
    Etcd,
    /// The engine `postgres`.
    Postgres,
}

impl Needs {
    pub(crate) fn are_met_by(self, kind: &EngineKind) -> bool {
        match self {
            Needs::AnyEngine => true,
            Needs::Durability => kind.durable,
            Needs::Sharing => kind.is_shared(),
            Needs::Etcd => kind.name == "etcd",
            Needs::Postgres => kind.name == "postgres",
        }
    }
}

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) run: fn(Bench) -> Pin<Box<dyn Future<Output = ()>>>,
}

macro_rules! cases {
    ($($needs:ident: $($module:ident::$case:ident),+;)+) => {
        &[$($(Case {
            name: stringify!($case),
            needs: Needs::$needs,
            run: |bench| Box::pin($module::$case(bench)),
        }),+),+]
    };
}

pub(crate) const CASES: &[Case] = cases! {
    AnyEngine:
        commits::e1_records_come_in_the_order_asked,
        commits::e2_compare_covers_present_records,
        commits::e2_compare_covers_absent_records,
        commits::e2_compare_covers_removed_records,
        commits::e2_compare_covers_records_that_are_not_written,
        commits::e2_one_difference_among_many_is_a_conflict,
        commits::e2_an_unrelated_commit_in_between_is_no_conflict,
        commits::e2_a_commit_in_between_is_noticed_although_other_versions_are_equal,
        commits::e4_a_conflict_writes_nothing,
        commits::e4_a_batch_without_changes_only_compares,
        commits::large_and_empty_values_come_back,
        versions::e3_the_ith_change_has_version_first_plus_i,
        versions::e3_a_record_made_again_has_a_new_version,
        versions::changes_of_one_key_apply_in_order,
        concurrency::e1_e5_loads_see_only_whole_commits,
        concurrency::e5_scans_see_only_whole_commits,
        concurrency::e2_no_increment_is_lost,
        concurrency::e5_no_reader_goes_back,
        scans::in_key_order_and_only_the_prefix,
        scans::the_start_is_inclusive_or_exclusive,
        scans::a_start_outside_of_the_prefix,
        scans::limits_end_it_and_say_so,
        scans::pages_put_together_are_the_whole,
        scans::removed_records_are_gone,
        wants::e6_a_version_comes_with_the_size_and_without_bytes,
        wants::e6_bytes_come_as_far_as_they_are_wanted,
        wants::e6_spare_bounds_what_is_read,
        wants::e2_compare_covers_records_of_which_only_the_version_was_loaded,
        wants::large_records_replace_small_ones_and_back,
        wants::large_records_of_one_key_in_one_commit_apply_in_order,
        wants::large_records_are_scanned_like_others,
        wants::e1_e5_loads_of_large_records_see_only_whole_commits;
    Durability:
        durability::e4_a_commit_is_durable,
        durability::e4_nothing_of_a_conflict_appears_later,
        durability::e3_versions_are_not_reused_after_reopening,
        durability::every_record_is_found_when_memory_holds_almost_none,
        durability::large_records_are_found_when_memory_holds_almost_none;
    Sharing:
        shared::one_gateway_sees_what_another_committed,
        shared::e2_no_increment_is_lost_between_gateways,
        shared::e2_records_that_are_only_compared_hold_until_the_commit,
        shared::e2_absent_records_stay_absent_until_the_commit,
        shared::e2_a_commit_that_compared_an_old_shared_record_conflicts,
        shared::e2_a_change_of_the_shared_record_has_every_earlier_commit_before_it,
        shared::commits_that_need_the_same_records_in_any_order_all_end,
        shared::changes_of_one_compared_key_apply_in_order,
        shared::a_batch_as_large_as_the_limits_is_committed,
        shared::large_records_of_two_gateways_replace_each_other;
    Etcd:
        etcd_own::many_gateways_make_one_note,
        etcd_own::comparisons_and_changes_are_limited,
        etcd_own::bytes_are_limited,
        etcd_own::the_limits_of_the_server_count,
        etcd_own::e1_a_load_of_several_requests_is_of_one_revision_although_etcd_is_compacted,
        etcd_own::a_place_that_is_no_cluster_is_named,
        etcd_own::a_full_database_takes_no_commits_until_there_is_room,
        etcd_own::users_and_their_rights,
        etcd_own::certificates,
        etcd_own::keys_that_were_removed_stop_commits,
        etcd_own::t46_a_restored_snapshot_is_noticed_and_its_versions_are_new_once_it_is_accepted,
        etcd_own::t46_records_in_another_cluster_are_refused_until_they_are_accepted,
        etcd_members::nothing_is_lost_when_leaders_are_killed,
        etcd_members::nothing_is_lost_when_leaders_are_stopped_and_go_on;
    Postgres:
        postgres_own::many_gateways_make_one_schema,
        postgres_own::a_server_that_may_lose_commits_or_cannot_write_is_refused,
        postgres_own::settings_that_cannot_be_met_are_refused,
        postgres_own::a_schema_that_cannot_be_used_is_refused,
        postgres_own::another_history_is_refused_until_it_is_accepted,
        postgres_own::a_schema_that_was_removed_is_named,
        postgres_own::other_isolations_are_refused,
        postgres_own::e4_a_commit_is_synchronous_whatever_the_role_asks_for,
        postgres_own::an_account_needs_these_rights_and_no_others,
        postgres_own::an_account_that_may_not_make_the_schema_uses_one_that_is_there,
        postgres_own::a_pool_of_transactions_may_be_in_between,
        mutants::commits_lock_records_in_the_order_of_keys,
        mutants::a_missing_placeholder_is_found,
        mutants::a_missing_lock_is_found,
        mutants::a_filter_below_the_lock_is_found;
};
