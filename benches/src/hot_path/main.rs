//! Instruction counts of the hot path, by valgrind: a check against gradual slowdown that machine noise does not
//! affect. Beside it, system calls and context switches per request (`calls.rs`).
//!
//! `hot-path run NAME COUNT` runs one part of the path COUNT times. `hot-path check` runs every part twice under
//! callgrind, with two counts: the difference divided by the additional repetitions is the cost of one repetition, and
//! the cost of starting the program cancels out. It compares that with `docs/instructions.md`, which `hot-path record`
//! writes.

mod baseline;
mod calls;
mod guard;
mod parts;

use baseline::{Baseline, Entry};
use guard::Finding;
use parts::PARTS;

const USAGE: &str = "usage: hot-path check | record | run NAME COUNT";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["check"] => check().and_then(|()| calls::check()),
        ["record"] => record().and_then(|()| calls::record()),
        ["run", name, count] => match (parts::find(name), count.parse()) {
            (Some(part), Ok(count)) => (part.run)(count),
            _ => Err(USAGE.to_owned()),
        },
        _ => Err(USAGE.to_owned()),
    };
    if let Err(error) = result {
        eprintln!("hot-path: {error}");
        std::process::exit(1);
    }
}

/// Counts every part, and prints a line for each.
fn counted() -> Result<Vec<Entry>, String> {
    let count = |part: &parts::Part| {
        let instructions = guard::instructions(part)?;
        eprintln!("{:<14} {instructions:>8} instructions", part.name);
        Ok(Entry { name: part.name.to_owned(), instructions })
    };
    PARTS.iter().map(count).collect()
}

fn record() -> Result<(), String> {
    let (compiler, valgrind, processor) = (guard::compiler(), guard::valgrind()?, guard::processor());
    let baseline = Baseline { compiler, valgrind, processor, entries: counted()? };
    baseline.write()?;
    println!("{} is written", baseline::DOCUMENT);
    Ok(())
}

fn check() -> Result<(), String> {
    let baseline = Baseline::read()?;
    let now = [guard::compiler(), guard::valgrind()?, guard::processor()];
    let then = [&baseline.compiler, &baseline.valgrind, &baseline.processor];
    for (now, then) in now.iter().zip(then) {
        if now != then {
            println!("note: recorded with {then}, counted now with {now}; a difference may come from that");
        }
    }
    let mut above = Vec::new();
    for entry in counted()? {
        let part = parts::find(&entry.name).ok_or("a part is missing")?;
        match guard::compare(baseline.instructions(&entry.name), entry.instructions, part.tolerance) {
            Finding::Within => {}
            Finding::Above { recorded, percent } => above.push(format!(
                "{}: {} instructions, {percent:.1} % above the recorded {recorded}; {} % are tolerated",
                entry.name, entry.instructions, part.tolerance
            )),
            Finding::Below { recorded, percent } => println!(
                "{}: {} instructions, {percent:.1} % below the recorded {recorded}. Good: run `make bench-instructions ARGS=record`, so that it stays so",
                entry.name, entry.instructions
            ),
            Finding::Unknown => {
                println!("{}: not recorded yet; run `make bench-instructions ARGS=record`", entry.name);
            }
        }
    }
    match above.as_slice() {
        [] => {
            println!("instruction counts are within their tolerances ({})", baseline::DOCUMENT);
            Ok(())
        }
        above => Err(format!(
            "the hot path has grown.\n  {}\nMake it shorter; or, if the growth is meant, run `make bench-instructions ARGS=record` and say why in the commit",
            above.join("\n  ")
        )),
    }
}
