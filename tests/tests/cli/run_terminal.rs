//! `fencepost run` at a terminal: the foreground process, Ctrl-C, Ctrl-Z, and losing a lease there.

use std::path::{Path, PathBuf};
use std::process::Command;

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::binary;
use fencepost_harness::terminal::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Long enough that no lease expires before the test wants it to.
const TTL: &str = "10s";

/// Does nothing until it is killed.
const IDLE: &str = "while :; do sleep 0.05; done";

struct Scene {
    gateway: Fresh,
    dir: TempDir,
}

impl Scene {
    fn new() -> Scene {
        Scene { gateway: Fresh::memory(&[]), dir: TempDir::new().unwrap() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `fencepost run` with a shell script. `$D` is a directory of this test.
    fn run(&self, arguments: &[&str], script: &str) -> Command {
        let mut command = Command::new(binary());
        command.args(["run", "--lock", &format!("fencepost://{}", self.gateway.address())]);
        command.args(["--url", self.gateway.url(), "--resource", "job"]).args(arguments);
        command.args(["--", "sh", "-c", script]).env("D", self.dir.path());
        command
    }

    /// The same as a line for a shell. The script must not contain `'`.
    fn line(&self, arguments: &[&str], script: &str) -> String {
        let command = self.run(arguments, script);
        let words: Vec<String> = command.get_args().map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        format!("{} {}", binary().display(), words.join(" "))
    }

    /// A shell with job control.
    fn shell(&self) -> Terminal {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "--noediting", "-i"]).env("D", self.dir.path()).env("PS1", "$ ");
        Terminal::start(&bash)
    }

    /// Another holder takes the lock as soon as its lease is over.
    fn take_over(&self) {
        let body = br#"{"holder":"successor#1","ttl_ms":60000,"wait_ms":40000}"#;
        assert_eq!(self.gateway.client().request("POST", "/v1/locks/job", &[], body).status, 201);
    }
}

/// Waits for a file with a complete line, and returns its text.
fn appears(path: &Path) -> String {
    wait::until(&format!("{}", path.display()), PATIENCE, || {
        std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n')).map(|text| text.trim().to_owned())
    })
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

/// The state and the parent of a process, if it exists.
fn look(process: Pid) -> Option<(char, Pid)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, pid(fields.next()?)))
}

fn is_stopped(process: Pid) -> bool {
    look(process).is_some_and(|(state, _)| state == 'T')
}

fn is_gone(process: Pid) -> bool {
    look(process).is_none_or(|(state, _)| state == 'Z')
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    wait::until(what, PATIENCE, || condition().then_some(()));
}

#[test]
fn the_program_reads_from_the_terminal_and_whoever_comes_next_too() {
    let scene = Scene::new();
    let script = "echo $$ > $D/ready; read line; echo got $line > $D/got";
    // Without job control, only `fencepost run` itself can take the terminal back.
    let line = format!("{}; echo > $D/over; read line; echo then $line > $D/then", scene.line(&[], script));
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).env("D", scene.dir.path());
    let mut terminal = Terminal::start(&shell);
    let program = pid(&appears(&scene.file("ready")));
    until("the program to have the terminal", || terminal.foreground() == Some(program));
    terminal.keys("one\n");
    assert_eq!(appears(&scene.file("got")), "got one");
    appears(&scene.file("over"));
    assert_eq!(terminal.foreground(), Some(terminal.leader()), "given back");
    terminal.keys("two\n");
    assert_eq!(appears(&scene.file("then")), "then two");
    assert_eq!(terminal.end(PATIENCE).code(), Some(0));
}

#[test]
fn ctrl_c_reaches_the_program() {
    let scene = Scene::new();
    let script = format!("trap 'echo > $D/told; exit 7' INT; echo > $D/ready; {IDLE}");
    let mut terminal = Terminal::start(&scene.run(&[], &script));
    appears(&scene.file("ready"));
    terminal.keys("\x03");
    appears(&scene.file("told"));
    assert_eq!(terminal.end(PATIENCE).code(), Some(7));
}

#[test]
fn a_lost_lease_ends_the_program_and_all_it_started() {
    let scene = Scene::new();
    let script = format!("trap \"\" TERM; sleep 1000 & echo $$ $! > $D/pids; {IDLE}");
    let line = scene.line(&["--ttl", TTL, "--grace", "300ms"], &script);
    // The session leader must stay alive: when it exits, the terminal hangs up and ends every process in the
    // foreground.
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{line}; echo $? > $D/code; read line")]).env("D", scene.dir.path());
    let terminal = Terminal::start(&shell);
    let pids: Vec<Pid> = appears(&scene.file("pids")).split_whitespace().map(pid).collect();
    let (_, run) = look(pids[0]).unwrap();
    kill_process(run, Signal::STOP).unwrap();
    scene.take_over();
    kill_process(run, Signal::CONT).unwrap();
    assert_eq!(appears(&scene.file("code")), "3");
    for process in pids {
        until("a process of the program to be gone", || is_gone(process));
    }
    assert_eq!(terminal.foreground(), Some(terminal.leader()), "given back");
}

#[test]
fn ctrl_z_stops_both_and_fg_brings_both_back() {
    let scene = Scene::new();
    let terminal = scene.shell();
    let shell = terminal.leader();
    // A single process: a shell that waits between vfork and exec of a child is never seen in the stopped state.
    let line = scene.line(&[], "echo $$ > $D/ready; exec sleep 600");
    terminal.keys(&format!("{line}\n"));
    let program = pid(&appears(&scene.file("ready")));
    let (_, run) = look(program).unwrap();
    for _ in 0..3 {
        until("the program to have the terminal", || terminal.foreground() == Some(program));
        terminal.keys("\x1a");
        until("both to be stopped", || is_stopped(program) && is_stopped(run));
        until("the shell to have the terminal", || terminal.foreground() == Some(shell));
        terminal.keys("fg\n");
        until("both to go on", || !is_stopped(program) && !is_stopped(run));
    }
    // In the background it continues without the terminal.
    until("the program to have the terminal", || terminal.foreground() == Some(program));
    terminal.keys("\x1a");
    until("both to be stopped", || is_stopped(program) && is_stopped(run));
    until("the shell to have the terminal", || terminal.foreground() == Some(shell));
    terminal.keys("bg\n");
    until("both to go on", || !is_stopped(program) && !is_stopped(run));
    assert_eq!(terminal.foreground(), Some(shell));
    kill_process(run, Signal::TERM).unwrap();
    until("the program to end", || is_gone(program));
    terminal.keys("wait; echo > $D/still\n");
    appears(&scene.file("still"));
    assert_eq!(terminal.foreground(), Some(shell), "a job in the background does not take the terminal");
}

#[test]
fn a_lease_that_ended_while_stopped_ends_the_program() {
    let scene = Scene::new();
    let terminal = scene.shell();
    // Whatever it does after it was stopped is visible. A single process: a shell that waits between vfork and exec of
    // a child is never seen in the stopped state.
    let script = "echo $$ > $D/ready; while :; do echo x >> $D/steps; done";
    terminal.keys(&format!("{}\n", scene.line(&["--ttl", TTL], script)));
    let program = pid(&appears(&scene.file("ready")));
    let (_, run) = look(program).unwrap();
    until("the program to have the terminal", || terminal.foreground() == Some(program));
    appears(&scene.file("steps"));
    terminal.keys("\x1a");
    until("both to be stopped", || is_stopped(program) && is_stopped(run));
    scene.take_over();
    let steps = std::fs::read(scene.file("steps")).unwrap();
    terminal.keys("fg; echo $? > $D/code\n");
    assert_eq!(appears(&scene.file("code")), "3");
    assert!(is_gone(program));
    assert_eq!(std::fs::read(scene.file("steps")).unwrap(), steps, "it did not go on with its work first");
    until("the loss to be shown", || {
        let screen = terminal.screen();
        screen.contains("in time") || screen.contains("taken over")
    });
}

#[test]
fn without_a_shell_ctrl_z_stops_nothing_for_good() {
    let scene = Scene::new();
    // A single process: its child could be stopped between vfork and exec; the waiting shell would then never be seen
    // in the stopped state.
    let script = "trap 'exit 7' INT; echo $$ > $D/ready; while :; do :; done";
    let mut terminal = Terminal::start(&scene.run(&[], script));
    let program = pid(&appears(&scene.file("ready")));
    until("the program to have the terminal", || terminal.foreground() == Some(program));
    terminal.keys("\x1a");
    terminal.keys("\x03");
    assert_eq!(terminal.end(PATIENCE).code(), Some(7));
}

#[test]
fn in_a_pipeline_the_program_gets_the_terminal_when_it_asks() {
    let scene = Scene::new();
    let terminal = scene.shell();
    let script = "echo $$ > $D/ready; until [ -e $D/go ]; do sleep 0.02; done; read line < /dev/tty; echo got $line";
    terminal.keys(&format!("{} | cat > $D/got\n", scene.line(&[], script)));
    let program = pid(&appears(&scene.file("ready")));
    assert_ne!(terminal.foreground(), Some(program), "the rest of the pipeline may be using it");
    std::fs::write(scene.file("go"), "").unwrap();
    until("the program to have the terminal", || terminal.foreground() == Some(program));
    terminal.keys("one\n");
    assert_eq!(appears(&scene.file("got")), "got one");
    until("the shell to have the terminal", || terminal.foreground() == Some(terminal.leader()));
}

#[test]
fn a_job_in_the_background_that_wants_the_terminal_waits_for_fg() {
    let scene = Scene::new();
    let terminal = scene.shell();
    let script = "echo $$ > $D/ready; read line < /dev/tty; echo got $line > $D/got";
    terminal.keys(&format!("{} &\n", scene.line(&[], script)));
    let program = pid(&appears(&scene.file("ready")));
    let (_, run) = look(program).unwrap();
    until("both to be stopped", || is_stopped(program) && is_stopped(run));
    terminal.keys("fg\n");
    until("the program to have the terminal", || terminal.foreground() == Some(program));
    terminal.keys("one\n");
    assert_eq!(appears(&scene.file("got")), "got one");
    until("the shell to have the terminal", || terminal.foreground() == Some(terminal.leader()));
}
