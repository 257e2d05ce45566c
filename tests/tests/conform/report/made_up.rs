//! Fabricated results, for states that real runs rarely produce.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_conformance::answer::Answer;
use fencepost_conformance::cases::Case;
use fencepost_conformance::evidence::{Evidence, Minimum};
use fencepost_conformance::history::{Event, History, Mark, Operation, Time};
use fencepost_conformance::manifest::{Kill, Manifest};
use fencepost_conformance::op::Op;
use fencepost_conformance::report::Setting;
use fencepost_conformance::subject::Shift;
use fencepost_conformance::verdict::{CaseResult, Failure, Level, Results, Status};

/// Text that breaks careless writers of terminal output, XML, HTML or TAP.
pub(crate) const NASTY: &str = "</p><script>alert('x')</script> & \"q\" # \\ \u{1b}[31m\u{0} ]]> --> …";

/// A case that is never run. Leaking is acceptable in tests.
pub(crate) fn case(id: &'static str, level: Level) -> &'static Case {
    Box::leak(Box::new(Case {
        id,
        title: "a title of a few words",
        rule: "A token below the fence is refused.",
        why: "Two writers would overwrite each other.",
        level,
        needs: &[],
        minima: &[Minimum::Refused(3)],
        run: |_| Ok(()),
    }))
}

/// One result, with a reason if its status requires one.
pub(crate) fn result(id: &'static str, level: Level, status: Status) -> CaseResult {
    let reason = match status {
        Status::Pass => "",
        Status::Fail => "write #41 (token 5) was accepted, but read #38 had returned fence 9.",
        Status::Skip => "there is no `kill` hook, so this cannot be tried",
        Status::NotApplicable => "it has no batch",
        Status::Unknown => "too little was seen: at least 3 refused as stale, only 1",
        Status::Info => "a duplicate of the current token was accepted",
        Status::Error => "the adapter ended",
    };
    let sentence = reason.to_owned();
    CaseResult {
        case: case(id, level),
        status,
        reason: sentence.clone(),
        failure: (status == Status::Fail).then(|| Failure { sentence, operations: vec![2, 3] }),
        evidence: Evidence { operations: 12, accepted: 5, refused: 1, ..Evidence::default() },
        took: Duration::from_millis(1234),
        history: (status == Status::Fail).then(short_history),
        remark: None,
    }
}

/// A run that requested `level`, with these cases.
pub(crate) fn results(level: Level, cases: &[(&'static str, Level, Status)]) -> Results {
    Results {
        subject: "http://127.0.0.1:9 by resource.toml".into(),
        manifest: Manifest { kill: Kill::Everything, ..Manifest::default() },
        instances: 1,
        seed: 7,
        level,
        cases: cases.iter().map(|(id, level, status)| result(id, *level, *status)).collect(),
        excluded: BTreeMap::new(),
        left_out: 0,
        broken: None,
        warnings: Vec::new(),
    }
}

/// One case of every status.
pub(crate) fn every_status() -> Results {
    results(
        Level::L3,
        &[
            ("A01", Level::L1, Status::Pass),
            ("A02", Level::L1, Status::Fail),
            ("E01", Level::L1, Status::NotApplicable),
            ("B01", Level::L1, Status::Info),
            ("C01", Level::L2, Status::Unknown),
            ("Z01", Level::L2, Status::Skip),
            ("R01", Level::L3, Status::Error),
        ],
    )
}

/// The setting of the run.
pub(crate) fn setting() -> Setting {
    Setting {
        version: "0.1.0".into(),
        adapter: vec!["http".into(), "--map".into(), "my resource.toml".into()],
        ..Setting::default()
    }
}

fn operation(id: u64, client: u32, op: Op, micros: (u64, u64), answer: Answer) -> Operation {
    let (called, returned) = (micros.0 * 1000, micros.1 * 1000);
    Operation { id, client, op, called, returned, answer, dead_by: None, copy_of: None }
}

/// Three operations of two clients.
pub(crate) fn short_history() -> History {
    let stale = Answer::Stale { high: Some(9) };
    let read = Answer::Ok { value: Some(Some("v-9".into())), high: Some(9) };
    History {
        case: "A02".into(),
        seed: 7,
        manifest: Manifest::default(),
        operations: vec![
            operation(1, 0, Op::write("r1", 9, "h0", "v-9"), (100, 900), Answer::ok()),
            operation(2, 1, Op::read("r1"), (1000, 1400), read),
            operation(3, 0, Op::write("r1", 5, "h0", "v-5"), (1500, 2000), Answer::ok()),
            operation(4, 0, Op::write("r1", 4, "h0", "v-4"), (2100, 2300), stale),
        ],
        marks: Vec::new(),
        judged: None,
    }
}

/// Everything a timeline can show: overlaps, each answer, copies, open outcomes, pauses, kills, long and difficult
/// names.
pub(crate) fn rich_history() -> History {
    let stale = Answer::Stale { high: Some(9) };
    let ok = |high| Answer::Ok { value: None, high: Some(high) };
    let mut operations = vec![
        operation(1, 0, Op::write("fp1-7-r03-0", 4, "h0", "v-1"), (1_000, 2_500), ok(4)),
        operation(
            2,
            1,
            Op::claim("fp1-7-r03-0", 5, "h1"),
            (1_200, 3_100),
            Answer::Ok { value: Some(None), high: Some(5) },
        ),
        operation(
            3,
            2,
            Op::write("fp1-7-r03-0", 9, "h2", "v-2"),
            (2_000, 40_000),
            Answer::unknown("the connection was reset"),
        ),
        operation(
            4,
            3,
            Op::read("fp1-7-r03-0"),
            (4_000, 4_800),
            Answer::Ok { value: Some(Some("v-2".into())), high: Some(9) },
        ),
        operation(5, 0, Op::write("fp1-7-r03-0", 5, "h0", "v-3"), (5_000, 5_600), stale.clone()),
        operation(
            6,
            1,
            Op::cas("fp1-7-r03-0", 9, "h1", Some("v-1"), "v-4"),
            (5_100, 7_000),
            Answer::Mismatch { current: Some(Some("v-2".into())) },
        ),
        operation(
            7,
            3,
            Op::delete("fp1-7-r03-0", 18_446_744_073_709_551_615, "h3"),
            (6_000, 6_900),
            Answer::error(NASTY),
        ),
        operation(
            8,
            0,
            Op::write("fp1-7-r03-0", 9, "h0", NASTY),
            (20_000, 21_000),
            Answer::unknown("no answer in time"),
        ),
        operation(
            9,
            1,
            Op::checked_read("fp1-7-r03-0", 5),
            (60_000, 61_000),
            Answer::Ok { value: Some(Some("v-1".into())), high: Some(4) },
        ),
        operation(10, 0, Op::write("fp1-7-r03-0", 5, "h0", "v-6"), (1_203_000, 1_204_000), ok(5)),
        operation(11, 0, Op::write("fp1-7-r03-0", 5, "h0", "v-6"), (1_203_400, 1_203_900), stale),
        operation(12, 2, Op::read("fp1-7-r03-0"), (1_205_000, 0), Answer::unknown("no answer yet")),
        operation(13, 3, Op::read("fp1-7-r03-0"), (1_206_000, 1_206_000), Answer::Ok { value: Some(None), high: None }),
        operation(14, 3, Op::read("fp1-7-r03-0"), (1_206_001, 1_206_500), Answer::Ok { value: Some(None), high: None }),
    ];
    operations[7].dead_by = Some(30_000_000);
    operations[10].copy_of = Some(10);
    operations[11].returned = Time::MAX;
    let mark = |micros: u64, event| Mark::new(micros * 1000, event);
    History {
        case: "R03".into(),
        seed: 7,
        manifest: Manifest::default(),
        operations,
        marks: vec![
            mark(10_000, Event::Paused),
            mark(15_000, Event::Resumed),
            mark(30_000, Event::Killed),
            mark(50_000, Event::Restarted),
            mark(60_000, Event::Clock(Shift::AHEAD)),
        ],
        judged: None,
    }
}

/// Sixteen clients, twenty thousand operations, a hundred kills.
pub(crate) fn long_history() -> History {
    let operations = (0..20_000u64).map(|number| {
        let called = number * 50;
        let op = Op::write(&format!("fp1-7-c02-{}", number % 7), number, "h", &format!("v-{number}"));
        operation(number + 1, (number % 16) as u32, op, (called, called + 600), Answer::ok())
    });
    let marks = (0..100u64)
        .map(|number| Mark::new(number * 10_000_000, if number % 2 == 0 { Event::Killed } else { Event::Restarted }));
    History {
        case: "C02".into(),
        seed: 7,
        manifest: Manifest::default(),
        operations: operations.collect(),
        marks: marks.collect(),
        judged: None,
    }
}
