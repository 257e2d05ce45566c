//! The list of cases.

use std::pin::Pin;

use crate::bench::Bench;
use crate::{commits, concurrency, durability, scans, versions, wants};

/// Which engines a case is for.
#[derive(PartialEq, Eq)]
pub(crate) enum Needs {
    AnyEngine,
    Durability,
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
        versions::e3_versions_grow_with_every_commit,
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
};
