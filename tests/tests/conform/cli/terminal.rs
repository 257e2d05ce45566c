//! A run at a terminal: the progress bar, the colours, and how to turn them off.

use std::process::Command;

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::terminal::Terminal;

use super::{adapter, command, conform, dir, text};

/// The start of every redraw of the bar: return to the first column and clear the line.
const ANEW: &str = "\r\x1b[2K";

/// Runs the program at a terminal to its end, where the last line begins with `last`. Returns the output and the exit
/// code.
pub(crate) fn shown(mut program: Command, last: &str) -> (String, Option<i32>) {
    program.env("TERM", "xterm").env("COLUMNS", "100");
    let mut terminal = Terminal::start(&program);
    let code = terminal.end(PATIENCE).code();
    let screen = wait::until(&format!("`{last}` at the terminal"), PATIENCE, || {
        let screen = terminal.screen();
        screen.contains(last).then_some(screen)
    });
    (screen, code)
}

/// Runs with `NO_COLOR` set to this; empty means unset.
fn run(arguments: &[&str], no_color: &str) -> (String, Option<i32>) {
    let dir = dir();
    // The program is started in another directory.
    let out = dir.path().join("report").display().to_string();
    let mut program = command(dir.path(), &[&["exec", "--out", out.as_str()], arguments].concat(), &adapter(None));
    program.env("NO_COLOR", no_color);
    shown(program, "PASSED: ")
}

#[test]
fn at_a_terminal_there_are_a_bar_and_colours() {
    let (screen, code) = run(&["--only", "A01"], "");
    assert_eq!(code, Some(0), "{screen:?}");
    let bar = format!("{ANEW}{} 1/1 · ", "░".repeat(20));
    assert!(screen.contains(&bar), "{screen:?}");
    assert!(screen.contains(&format!("{ANEW}\x1b[1mA  admission\x1b[0m")), "the bar gives way: {screen:?}");
    for coloured in ["\x1b[32mPASS   \x1b[0m A01", "\x1b[32mPASSED: 1 of 1 case (A01)"] {
        assert!(screen.contains(coloured), "{coloured:?} is missing in {screen:?}");
    }
}

#[test]
fn who_wants_no_colours_gets_none_and_a_pipe_gets_no_bar_either() {
    let (screen, code) = run(&["--only", "A01"], "1");
    assert_eq!(code, Some(0), "{screen:?}");
    assert!(screen.contains(&format!("{} 1/1 · ", "░".repeat(20))), "the bar is no colour: {screen:?}");
    assert!(!screen.replace(ANEW, "").contains('\x1b'), "{screen:?}");
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--only", "A01"], &adapter(None));
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(!printed.contains(['\x1b', '\r', '░']), "plain lines: {printed:?}");
}

#[test]
fn the_bar_shows_how_far_the_run_is_and_the_rounds_of_its_case() {
    let (screen, code) = run(&["--only", "A01,C01", "--rounds", "250"], "");
    assert_eq!(code, Some(0), "{screen:?}");
    let half = format!("{}{} 2/2 · ", "█".repeat(10), "░".repeat(10));
    let drawn: Vec<&str> = screen.split(ANEW).filter(|drawn| drawn.starts_with(&half)).collect();
    let rounds = drawn.iter().filter_map(|drawn| {
        let (round, of) = drawn.split(" · C01 ").nth(1)?.split_whitespace().next()?.split_once('/')?;
        Some((round.parse::<u64>().unwrap(), of.parse::<u64>().unwrap()))
    });
    let rounds: Vec<(u64, u64)> = rounds.collect();
    assert!(!rounds.is_empty(), "{drawn:?}");
    assert!(rounds.is_sorted() && rounds.iter().all(|(round, of)| *round <= 250 && *of == 250), "{rounds:?}");
}
