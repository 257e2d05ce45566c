//! The list of cases.

use std::pin::Pin;
use std::time::Duration;

use super::bench::Bench;
use super::failure::Checked;
use super::{commits, crossing, races, readers, scans, stress, versions, wants};
use crate::engine::{Engine, Ownership};

/// Which engines a case is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Any engine.
    AnyEngine,
    /// An engine that several gateways use.
    Sharing,
}

/// A case that is running. It ends with what is worth saying, or why it did not pass.
pub type Running = Pin<Box<dyn Future<Output = Checked<String>> + Send>>;

/// A case.
pub struct Case {
    /// Its name, with the rule that it is about.
    pub name: &'static str,
    /// Which engines it is for.
    pub needs: Needs,
    /// Percent of the time for stress that it takes; a case without a share takes as long as it does.
    pub(super) share: u32,
    pub(super) run: fn(Bench, Duration) -> Running,
}

impl Case {
    /// Whether the case is for this engine.
    pub fn is_for(&self, engine: &dyn Engine) -> bool {
        match self.needs {
            Needs::AnyEngine => true,
            Needs::Sharing => engine.ownership() == Ownership::Shared,
        }
    }

    /// Whether it runs for a share of the time for stress.
    pub fn is_stress(&self) -> bool {
        self.share > 0
    }
}

macro_rules! rules {
    ($needs:ident: $($module:ident::$case:ident),+ $(,)?) => {
        &[$(Case {
            name: stringify!($case),
            needs: Needs::$needs,
            share: 0,
            run: |bench, _| Box::pin(async move { $module::$case(bench).await.map(|()| String::new()) }),
        }),+]
    };
}

const RULES: &[Case] = rules! {
    AnyEngine:
        commits::e1_records_come_in_the_order_asked,
        commits::e2_compare_covers_present_records,
        commits::e2_compare_covers_absent_records,
        commits::e2_compare_covers_removed_records,
        commits::e2_compare_covers_records_that_are_not_written,
        commits::e2_one_difference_among_many_is_a_conflict,
        commits::e2_an_unrelated_commit_in_between_is_no_conflict,
        commits::e2_a_commit_in_between_is_noticed_although_other_versions_are_equal,
        commits::e2_a_commit_that_compared_an_old_shared_record_conflicts,
        commits::e4_a_conflict_writes_nothing,
        commits::e4_a_batch_without_changes_only_compares,
        commits::e4_a_commit_that_is_done_is_there,
        commits::large_and_empty_values_come_back,
        commits::changes_of_one_compared_key_apply_in_order,
        versions::e3_the_ith_change_has_version_first_plus_i,
        versions::e3_a_record_made_again_has_a_new_version,
        versions::changes_of_one_key_apply_in_order,
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
        wants::large_records_of_two_gateways_replace_each_other,
        readers::e1_e5_loads_see_only_whole_commits,
        readers::e5_scans_see_only_whole_commits,
        readers::e1_e5_loads_of_large_records_see_only_whole_commits,
        readers::e5_no_reader_goes_back,
        races::e2_no_increment_is_lost,
        races::e2_records_that_are_only_compared_hold_until_the_commit,
        races::e2_absent_records_stay_absent_until_the_commit,
};

const RULES_OF_SHARED_ENGINES: &[Case] = rules! {
    Sharing:
        commits::one_gateway_sees_what_another_committed,
        commits::a_batch_as_large_as_the_limits_is_committed,
        races::e2_a_change_of_the_shared_record_has_every_earlier_commit_before_it,
        crossing::commits_that_need_the_same_records_in_any_order_all_end,
};

const STRESS: &[Case] = &[
    Case {
        name: "commits_that_cross_do_not_hold_each_other_up",
        needs: Needs::Sharing,
        share: 20,
        run: |bench, time| Box::pin(crossing::commits_that_cross_do_not_hold_each_other_up(bench, time)),
    },
    Case {
        name: "commits_have_one_order",
        needs: Needs::AnyEngine,
        share: 45,
        run: |bench, time| Box::pin(stress::commits_have_one_order(bench, time)),
    },
    Case {
        name: "lost_answers_are_settled",
        needs: Needs::Sharing,
        share: 35,
        run: |bench, time| Box::pin(stress::lost_answers_are_settled(bench, time)),
    },
];

/// Every case, in the order in which they run: the short ones first.
pub fn all() -> impl Iterator<Item = &'static Case> {
    RULES.iter().chain(RULES_OF_SHARED_ENGINES).chain(STRESS)
}
