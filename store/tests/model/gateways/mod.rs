//! An exhaustive model of two gateways over one shared engine: every order of what they, the engine and its faults do, for a
//! bounded number of requests and faults. It uses the standard library only and no code of the store: it models the protocol of
//! `store/src/{sequencer,lane,known_records,fence_cache,entry,reads}.rs`, for one resource with one key. What it covers and what
//! it does not: `docs/request-life.md`.
//!
//! That it can find mistakes is shown by seeding them. `-- gateways --nocapture` prints the shortest way to each.
//!
//! Alone, in seconds: `rustc --edition 2024 -O --test store/tests/model/gateways/mod.rs -o /tmp/gateways && /tmp/gateways`.
//!
//! Budget: CI three requests, or one or two with many faults; full one more.

mod engine;
mod event;
mod gateway;
mod mistake;
mod names;
mod promise;
mod request;
mod search;
mod settlement;
mod state;
mod trace;
mod work;
mod world;

use std::collections::HashSet;
use std::time::Instant;

use mistake::SEEDED;
use request::{Answer, Reason, Write};
use search::explore;
use world::World;

/// Like the harness does it.
fn budget(ci: u32, full: u32) -> u32 {
    match std::env::var("FENCEPOST_BUDGET").as_deref() {
        Err(_) | Ok("" | "ci") => ci,
        Ok("full") => full,
        Ok(other) => panic!("FENCEPOST_BUDGET is `{other}`; write `ci` or `full`"),
    }
}

/// Explores a world in which no mistake is made.
fn keeps_every_promise(world: World) -> HashSet<Answer> {
    let world = World { requests: budget(world.requests, world.requests + 1), ..world };
    let started = Instant::now();
    let explored = explore(&world);
    let (name, requests, states, depth) = (world.name, world.requests, explored.states, explored.depth);
    println!("{name}: {requests} requests, {states} states, up to {depth} steps, {:.1?}", started.elapsed());
    if let Some(counterexample) = explored.counterexample {
        panic!("{}:\n{}", counterexample.broken, counterexample.steps.join("\n"));
    }
    explored.answers
}

#[test]
fn two_gateways_keep_every_promise() {
    let answers = keeps_every_promise(World::PROVED);
    for answer in [
        Answer::Applied,
        Answer::Replayed,
        Answer::Claimed(None),
        Answer::Claimed(Some(Write(3))),
        Answer::Refused(Reason::Stale),
        Answer::Refused(Reason::RetiredGeneration),
        Answer::Refused(Reason::UnknownGeneration),
        Answer::Rotated(1),
        Answer::OtherGeneration,
        Answer::Unknown,
    ] {
        assert!(answers.contains(&answer), "`{answer}` was never answered, so nothing is said about it");
    }
}

#[test]
fn a_gateway_that_is_killed_breaks_no_promise() {
    keeps_every_promise(World::KILLS);
}

#[test]
fn a_gateway_that_is_stopped_breaks_no_promise() {
    keeps_every_promise(World::STOPS);
}

#[test]
fn a_server_that_was_replaced_and_answers_loads_breaks_no_promise() {
    keeps_every_promise(World::UNPROVED);
}

#[test]
fn faults_of_all_kinds_together_break_no_promise() {
    keeps_every_promise(World::EVERY_FAULT);
    keeps_every_promise(World::EVERY_FAULT_UNPROVED);
}

#[test]
fn t46_no_gateway_goes_on_in_another_history() {
    keeps_every_promise(World::FAILOVER);
}

/// Where histories have no names, a lane notices what its own gateway has lost, and nothing else.
#[test]
fn t46_a_gateway_whose_own_commits_were_lost_stops() {
    keeps_every_promise(World::LANES_ALONE);
}

#[test]
fn every_seeded_mistake_is_found() {
    for seeded in SEEDED {
        let explored = explore(&seeded.world);
        let (mistakes, states) = (seeded.world.mistakes, explored.states);
        let found = explored.counterexample.unwrap_or_else(|| panic!("{mistakes:?} was not found in {states} states"));
        println!("\n{mistakes:?}: {}, in {} steps, after {states} states", found.broken, found.steps.len());
        for (step, words) in found.steps.iter().enumerate() {
            println!("  {}. {words}", step + 1);
        }
        assert_eq!(found.broken, seeded.breaks, "{mistakes:?}");
    }
}
