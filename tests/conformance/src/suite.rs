//! The suite as ordinary tests of a Rust type, one for each case.

use crate::cases;
use crate::random::Random;
use crate::resource::{FencedResource, InProcess};
use crate::run::{self, Options};
use crate::verdict::{Level, Status};

/// Makes a test of every case for a type that implements [`FencedResource`].
///
/// The argument is a function that makes a new resource; each test calls it once: `suite!(Ledger::new)`. A resource
/// that cannot be killed must stop at the level before: `suite!(Ledger::new, L2)`. A case that does not apply passes
/// and prints why; one that was skipped, or saw too little, fails. `FENCEPOST_SEED` sets the seed of all random
/// numbers.
#[macro_export]
macro_rules! suite {
    ($make:expr) => {
        $crate::suite!($make, L3);
    };
    ($make:expr, $level:ident) => {
        $crate::suite_cases! { suite_tests [$make] [$level] }
    };
}

/// The tests themselves; use [`suite!`].
#[doc(hidden)]
#[macro_export]
macro_rules! suite_tests {
    ([$make:expr] [$level:ident] $($name:ident $id:literal)*) => {
        $(
            #[test]
            fn $name() {
                $crate::suite::check($id, $crate::verdict::Level::$level, $make);
            }
        )*
    };
}

/// The names of the tests.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_names {
    ($($name:ident $id:literal)*) => {
        [$((stringify!($name), $id)),*]
    };
}

/// Passes every case to another macro of this file. A macro cannot read the list of cases; a test compares the two.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_cases {
    ($callback:ident $($first:tt)*) => {
        $crate::$callback! {
            $($first)*
            a01_the_first_write_is_accepted "A01"
            a02_a_higher_token_is_accepted "A02"
            a03_a_stale_token_is_refused "A03"
            a04_a_token_that_is_stale_by_one_is_refused "A04"
            a05_a_refusal_changes_nothing "A05"
            a06_gaps_between_tokens_do_not_matter "A06"
            a07_tokens_are_numbers_not_text "A07"
            a08_tokens_around_2_53_stay_apart "A08"
            a09_tokens_around_2_31_2_32_2_63_and_at_2_64_1 "A09"
            a10_zero_is_the_lowest_token_or_none "A10"
            a11_the_reported_fence_is_the_fence "A11"
            a12_a_refused_token_does_not_lower_the_fence "A12"
            a13_200_rising_tokens_are_all_accepted "A13"
            e01_the_holder_may_write_again "E01"
            e02_a_used_token_is_refused "E02"
            e03_the_same_policy_on_every_verb "E03"
            e04_a_claim_leaves_its_token_one_write "E04"
            e05_another_holder_with_the_same_token_is_refused "E05"
            b01_no_token_no_write "B01"
            b02_what_is_no_token_is_refused "B02"
            b03_two_tokens_that_contradict_each_other_are_refused "B03"
            b04_every_verb_that_changes_something_is_fenced "B04"
            b05_no_other_way_around_the_fence "B05"
            b06_resources_do_not_share_a_fence "B06"
            b07_delete_keeps_the_fence "B07"
            b08_an_old_token_cannot_create_again_what_was_deleted "B08"
            b09_the_current_token_is_not_adopted_for_an_absent_one "B09"
            b10_a_large_value_is_fenced_and_never_cut "B10"
            f01_a_checked_read_with_a_stale_token_is_refused "F01"
            f02_a_checked_read_with_the_current_token_sees_the_value "F02"
            f03_a_claim_raises_the_fence "F03"
            f04_a_checked_read_does_not_raise_the_fence "F04"
            f05_no_older_read_after_an_answer "F05"
            f06_a_refused_value_is_never_visible "F06"
            m01_a_batch_does_all_its_writes "M01"
            m02_a_batch_with_one_stale_token_does_nothing "M02"
            m03_a_refused_batch_raises_no_fence "M03"
            m04_readers_never_see_half_a_batch "M04"
            m05_killed_in_the_middle_of_a_batch "M05"
            m06_one_resource_twice_in_a_batch "M06"
            m07_batches_in_opposite_order "M07"
            c01_a_token_against_the_next_one "C01"
            c02_eight_writers_with_random_tokens "C02"
            c03_writers_that_share_a_token "C03"
            c04_sixteen_at_once_with_one_token "C04"
            c05_readers_and_writers "C05"
            c06_a_claim_against_a_write "C06"
            c07_two_instances_one_store "C07"
            c08_a_thousand_resources "C08"
            c09_conditional_writes_at_once "C09"
            c10_the_highest_token_succeeds_in_the_end "C10"
            z01_a_client_that_stops_before_it_sends "Z01"
            z02_a_request_that_is_half_sent "Z02"
            z03_delayed_past_the_next_token "Z03"
            z04_an_old_write_is_replayed "Z04"
            z05_a_write_of_the_current_token_is_replayed "Z05"
            z06_requests_that_arrive_in_another_order "Z06"
            z07_a_lost_answer_and_a_retry "Z07"
            z08_stopped_with_both_requests_waiting "Z08"
            z09_a_connection_that_breaks_in_the_middle "Z09"
            r01_restarted_in_order "R01"
            r02_killed_after_an_answer "R02"
            r03_a_refusal_survives_a_crash "R03"
            r04_a_fence_that_was_reported_survives_a_crash "R04"
            r05_value_and_fence_are_never_torn "R05"
            r06_killed_while_it_starts "R06"
            r07_a_storm_of_fifty_kills "R07"
            r08_very_many_other_resources_and_idle "R08"
            r09_killed_at_each_step "R09"
            r10_a_clock_that_is_set_wrong "R10"
            r11_an_older_backup_is_restored "R11"
        }
    };
}

/// Runs one case against a new resource, and panics with the reason if it does not pass.
pub fn check<R: FencedResource>(id: &str, level: Level, make: impl Fn() -> R) {
    let Some(case) = cases::find(id) else { panic!("there is no case {id}") };
    if case.level > level {
        println!("{id} is not asked for: it belongs to {}, and the suite ends with {level}", case.level);
        return;
    }
    let seed = match std::env::var("FENCEPOST_SEED") {
        Ok(_) => Random::from_environment().draw(),
        Err(_) => Options::default().seed,
    };
    let options = Options { only: vec![id.to_owned()], level, seed, ..Options::default() };
    let results = run::run(&InProcess::new(make()), &options, &mut ());
    let Some(result) = results.cases.into_iter().next() else { panic!("{id} was not run") };
    let said = format!("{} {id} {}: {}", result.status.word(), case.title, result.reason);
    match result.status {
        Status::Pass => {}
        Status::NotApplicable | Status::Info => println!("{said}"),
        Status::Fail | Status::Skip | Status::Unknown | Status::Error => {
            panic!("{said}\nThe rule: {}\nWhy: {}", case.rule, case.why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::cases;
    use crate::manifest::{Equal, Policy};
    use crate::reference::{Bug, Reference, SETUPS};
    use crate::verdict::Level;

    /// Group and number, and the title in words.
    fn name(id: &str, title: &str) -> String {
        let text = format!("{id} {title}").to_lowercase();
        let words: Vec<&str> =
            text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
        words.join("_")
    }

    #[test]
    fn every_case_is_a_test() {
        let listed: Vec<(String, &str)> = suite_cases! { suite_names }.map(|(name, id)| (name.to_owned(), id)).to_vec();
        let wanted: Vec<(String, &str)> = cases::all().map(|case| (name(case.id, case.title), case.id)).collect();
        let rows: Vec<String> = wanted.iter().map(|(name, id)| format!("            {name} \"{id}\"")).collect();
        assert!(listed == wanted, "the list of suite_cases! must be:\n{}", rows.join("\n"));
    }

    #[test]
    fn a_right_resource_passes() {
        check("A03", Level::L3, || Reference::new(Policy::Ge, Equal::Any));
        check("E05", Level::L3, || Reference::new(Policy::Ge, Equal::Any));
        check("R01", Level::L2, || -> Reference { panic!("it must not be made") });
    }

    #[test]
    #[should_panic(expected = "FAIL A03 a stale token is refused: ")]
    fn a_wrong_resource_fails() {
        check("A03", Level::L3, || Reference::set_up(SETUPS[0].1, Some(Bug::AcceptAll), 1));
    }
}
