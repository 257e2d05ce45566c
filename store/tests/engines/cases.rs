//! The list of cases.

use std::pin::Pin;

use fencepost_store::engines::EngineKind;

use crate::bench::Bench;
use crate::{checks, durability, etcd_members, etcd_own, mutants, postgres_own, wrong};

/// Which engines a case is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    AnyEngine,
    Durability,
    /// The engine `etcd`.
    Etcd,
    /// The engine `postgres`.
    Postgres,
    /// The engine `memory`, of which wrong ones are made.
    Memory,
}

impl Needs {
    pub(crate) fn are_met_by(self, kind: &EngineKind) -> bool {
        match self {
            Needs::AnyEngine => true,
            Needs::Durability => kind.durable,
            Needs::Etcd => kind.name == "etcd",
            Needs::Postgres => kind.name == "postgres",
            Needs::Memory => kind.name == "memory",
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
        checks::all_cases_pass_in_one_place;
    Durability:
        durability::e4_a_commit_is_durable,
        durability::e4_nothing_of_a_conflict_appears_later,
        durability::e3_versions_are_not_reused_after_reopening,
        durability::every_record_is_found_when_memory_holds_almost_none,
        durability::large_records_are_found_when_memory_holds_almost_none;
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
        postgres_own::a_schema_of_the_other_dialect_is_refused,
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
    Memory:
        wrong::a_shared_engine_that_loses_answers_passes,
        wrong::a_compare_that_is_lost_is_found,
        wrong::versions_that_are_given_again_are_found,
        wrong::a_commit_that_is_applied_after_it_was_settled_is_found;
};
