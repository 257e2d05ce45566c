//! The conformance suite against one, two and three gateways of one store. Each request goes to one of them, at random.
//!
//! What the suite does to a resource is done to all gateways: a kill that leaves one alive is none to it. Killing one of
//! several is the subject of `linearizability`.

use std::process::Child;
use std::time::Instant;

use fencepost_conformance::adapters::http::HttpSubject;
use fencepost_conformance::manifest::Kill;
use fencepost_conformance::proxy::Proxy;
use fencepost_conformance::random::Random;
use fencepost_conformance::run::{Options, run};
use fencepost_conformance::subject::{Around, Begun, Broken, Hook, Part, Request, Subject};
use fencepost_conformance::verdict::{Level, Outcome, Results, Status};
use fencepost_conformance::{Answer, Manifest};
use fencepost_harness::budget;
use parking_lot::Mutex;

use crate::balanced::Balanced;
use crate::team::{On, on_each};

on_each! {
    one_gateway_is_safe_at_l3,
    two_gateways_are_safe_at_l3,
    three_gateways_are_safe_at_l3,
    gateways_of_two_stores_are_not_safe,
}

/// What the suite tests: gateways behind a balancer, and what it can do to them.
struct Team {
    /// Dropped first: it has connections to the balancer.
    http: HttpSubject,
    hurt: Mutex<Hurt>,
}

struct Hurt {
    balanced: Balanced,
    /// Processes whose start was begun.
    starting: Vec<Child>,
}

impl Team {
    fn new(balanced: Balanced) -> Team {
        Team { http: balanced.open(), hurt: Mutex::new(Hurt { balanced, starting: Vec::new() }) }
    }
}

impl Hurt {
    fn kill(&mut self) {
        for child in &mut self.starting {
            child.kill().unwrap();
        }
        for mut child in self.starting.drain(..) {
            child.wait().unwrap();
        }
        let all: Vec<usize> = (0..self.balanced.gateways.len()).collect();
        self.balanced.kill(&all);
        // The map says that a kill ends everything. So it does: the server has nothing left to do for them.
        self.balanced.wait_for_dead(&all);
    }

    fn run(&mut self, hook: Hook) {
        match hook {
            Hook::Start => {
                self.starting.extend(self.balanced.gateways.iter().map(|gateway| gateway.begin_to_start()));
            }
            Hook::Kill => self.kill(),
            Hook::Restart => {
                self.balanced.stop();
                self.balanced.restart();
            }
            Hook::Pause => self.balanced.gateways.iter().for_each(|gateway| gateway.pause()),
            Hook::Resume => self.balanced.gateways.iter().for_each(|gateway| gateway.resume()),
            other => panic!("the suite was not told that there is a hook {}", other.name()),
        }
    }
}

impl Drop for Hurt {
    fn drop(&mut self) {
        for child in &mut self.starting {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Subject for Team {
    fn describe(&self) -> String {
        self.http.describe()
    }

    fn manifest(&self) -> &Manifest {
        self.http.manifest()
    }

    fn instances(&self) -> usize {
        self.http.instances()
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        self.http.call(request)
    }

    fn has(&self, hook: Hook) -> bool {
        matches!(hook, Hook::Start | Hook::Kill | Hook::Restart | Hook::Pause | Hook::Resume)
    }

    fn hook(&self, hook: Hook) -> Result<(), Broken> {
        self.hurt.lock().run(hook);
        Ok(())
    }

    fn begin(&self, request: &Request<'_>, part: Part) -> Option<Result<Box<dyn Begun>, Broken>> {
        self.http.begin(request, part)
    }

    fn bypasses(&self) -> Vec<Around> {
        self.http.bypasses()
    }

    fn bypass(&self, way: usize, request: &Request<'_>) -> Result<Answer, Broken> {
        self.http.bypass(way, request)
    }

    fn warnings(&self) -> Vec<String> {
        self.http.warnings()
    }

    fn proxy(&self) -> Option<&Proxy> {
        self.http.proxy()
    }
}

/// The cases that did not pass, and why.
fn told(results: &Results) -> String {
    let lines = results.cases.iter().filter(|result| result.status != Status::Pass);
    lines.map(|result| format!("{} {} {}\n", result.case.id, result.status.word(), result.reason)).collect()
}

fn safe(on: On, gateways: usize) {
    let (random, started) = (Random::from_environment(), Instant::now());
    let team = Team::new(Balanced::start(on, gateways, random));
    assert_eq!(team.manifest().kill, Kill::Everything);
    let options = Options { rounds: budget::pick(Some(420), None), ..Options::default() };
    let results = run(&team, &options, &mut ());
    let answered = team.hurt.lock().balanced.balancer.answered();
    println!("{on:?}, {gateways} gateways: {:.1} s, answered {answered:?}", started.elapsed().as_secs_f64());
    for level in [Level::L1, Level::L2, Level::L3] {
        println!("up to {level}: {:.1} s", results.took(level).as_secs_f64());
    }
    println!("{}", told(&results));
    assert_eq!(results.outcome(), Outcome::Safe, "{}", told(&results));
    // The suite has not started the gateways, so it cannot watch their system calls; the clock and backups are those of
    // the server. None of that caps the level.
    let not_tested = "a kill at each system call, a wrong clock, a restored backup, power loss and disk faults";
    assert_eq!(results.last_line(), format!("SAFE at L3 · not tested: {not_tested}"));
    assert_eq!(results.warnings, Vec::<String>::new());
    assert!(answered.iter().all(|count| *count > 1_000), "not every gateway took part: {answered:?}");
}

fn one_gateway_is_safe_at_l3(on: On) {
    safe(on, 1);
}

fn two_gateways_are_safe_at_l3(on: On) {
    safe(on, 2);
}

fn three_gateways_are_safe_at_l3(on: On) {
    safe(on, 3);
}

/// The suite would notice gateways that do not share their fences.
fn gateways_of_two_stores_are_not_safe(on: On) {
    let team = Team::new(Balanced::torn(on, Random::from_environment()));
    let results = run(&team, &Options { level: Level::L1, ..Options::default() }, &mut ());
    assert_eq!(results.outcome(), Outcome::NotSafe, "{}", told(&results));
    // Each request reaches the right store by chance only, so one case or another may pass.
    let failed = results.ids(Status::Fail);
    assert!(failed.len() >= 5, "few cases have noticed it: {failed:?}");
}
