//! The steps of a program: the system calls by which it changes persistent data or sends an answer. strace watches
//! them.
//!
//! Each such call is held for a moment before it is done. A case that counts them can kill the program in that moment.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tempfile::TempDir;

use super::process::{self, Program};
use crate::report::text::cut;
use crate::subject::{Broken, Steps};

/// Writes, syncs, and changes of names and lengths. `?`: not every machine has the call.
const CALLS: &str = "write,pwrite64,writev,pwritev,?pwritev2,sendto,sendmsg,fsync,fdatasync,?sync_file_range,msync,\
                     ?rename,?renameat,renameat2,?link,linkat,?unlink,unlinkat,ftruncate";

/// How long each call is held. A thread that wakes up every few hundred microseconds does not miss it.
const HELD: Duration = Duration::from_millis(4);

/// How long it may take to attach, on a busy machine.
const ATTACHING: Duration = Duration::from_secs(30);

/// Advice for messages: how to install strace.
const INSTALL: &str = "install strace (Debian: `apt-get install strace`)";

/// How strace prints the target of a call that only wakes another thread of the same program.
const INSIDE: &str = "<anon_inode:";

/// strace, attached to the processes of a program. Dropping it detaches from them.
pub struct Strace {
    // Field order matters: strace ends before the directory is removed.
    _strace: Program,
    counted: Mutex<Counted>,
    _output: TempDir,
}

/// The part of strace's output that was read so far.
struct Counted {
    output: File,
    /// An incomplete line.
    rest: Vec<u8>,
    made: u64,
    /// The latest step, as strace writes it, unless it was done.
    latest: Option<String>,
}

impl Strace {
    /// Attaches to processes. Once this has returned, every step they make is seen. `Err` gives the reason why they
    /// cannot be traced.
    pub fn watch(processes: &[i32]) -> Result<Strace, String> {
        if processes.is_empty() {
            return Err("none of its processes runs".to_owned());
        }
        let said = |Broken(why): Broken| why;
        let directory = process::directory().map_err(said)?;
        let path = directory.path().join("steps");
        let file = |error| format!("{} cannot be written: {error}", path.display());
        File::create(&path).map_err(file)?;
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-s", "0", "-e", "signal=none", "-e", &format!("trace={CALLS}")]);
        command.args(["-e", &format!("inject={CALLS}:delay_enter={}", HELD.as_micros())]);
        command.arg("-o").arg(&path);
        for number in processes {
            command.args(["-p", &number.to_string()]);
        }
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut strace = Program::start(command).map_err(|Broken(why)| format!("{why}; {INSTALL}"))?;
        let stderr = strace.child().stderr.take().ok_or("strace was started without a pipe")?;
        attached(BufReader::new(stderr), processes.len(), ATTACHING)?;
        let output = File::open(&path).map_err(file)?;
        let counted = Mutex::new(Counted { output, rest: Vec::new(), made: 0, latest: None });
        Ok(Strace { _strace: strace, counted, _output: directory })
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock()
    }
}

impl Steps for Strace {
    fn made(&self) -> u64 {
        self.counted().look().0
    }

    fn latest(&self) -> Option<String> {
        self.counted().look().1.as_deref().map(in_words)
    }
}

/// Waits until strace has reported for each process that it is attached, or that the process has just ended.
fn attached(mut stderr: impl BufRead + Send + 'static, processes: usize, patience: Duration) -> Result<(), String> {
    let (lines, heard) = sync_channel(processes);
    thread::spawn(move || {
        let mut line = String::new();
        while stderr.read_line(&mut line).is_ok_and(|read| read > 0) {
            // Read on even if the receiver is gone, so that strace never blocks on a full pipe.
            let _ = lines.send(std::mem::take(&mut line));
        }
    });
    let deadline = Instant::now() + patience;
    let (mut said, mut watched, mut gone) = (String::new(), 0, 0);
    while watched + gone < processes {
        let line = heard.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        match line {
            Ok(line) => {
                watched += usize::from(line.contains(" attached"));
                gone += usize::from(has_ended(&line));
                said.push_str(&line);
                if refused(&line) && !has_ended(&line) {
                    break;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("strace was not attached after {patience:?}: {said}"));
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if watched + gone < processes || watched == 0 {
        return Err(format!(
            "strace cannot watch its processes ({}); run as root, give the container the capability SYS_PTRACE, or set \
             `sysctl kernel.yama.ptrace_scope=0`",
            said.trim().replace('\n', "; ")
        ));
    }
    Ok(())
}

/// Whether this line reports that strace could not attach to a process.
fn refused(line: &str) -> bool {
    line.contains("attach: ptrace(")
}

/// Whether it could not attach because the process is gone, or is a zombie process, which cannot be traced.
fn has_ended(line: &str) -> bool {
    let number = line.split("ptrace(").nth(1).and_then(|call| call.split([',', ')']).nth(1)).map(str::trim);
    let is_there = |number: &str| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|state| !state.trim().is_empty() && !state.trim().starts_with('Z'))
    };
    refused(line) && (line.contains("No such process") || !number.is_some_and(is_there))
}

impl Counted {
    /// How many steps there are, and the latest one if it was not done.
    fn look(&mut self) -> (u64, Option<String>) {
        // Bytes that cannot be read now are read the next time.
        let _ = self.output.read_to_end(&mut self.rest);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if begins(&line) {
                self.made += 1;
                self.latest = (!is_done(&line)).then(|| line.into_owned());
            } else if is_done(&line) && self.latest.as_ref().is_some_and(|latest| number(latest) == number(&line)) {
                self.latest = None;
            }
        }
        // A held call is a line without a line end.
        let rest = String::from_utf8_lossy(&self.rest);
        match begins(&rest) {
            true => (self.made + 1, Some(rest.into_owned())),
            false => (self.made, self.latest.clone()),
        }
    }
}

/// The process id that a line begins with.
fn number(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

/// Whether this line shows the result of a call. `?` is the result if the process was killed in it.
fn is_done(line: &str) -> bool {
    line.rsplit_once(" = ").is_some_and(|(_, result)| !result.starts_with('?'))
}

/// `rename("CONFORM_DIR/log.new", "CONFORM_DIR/log")` of `4711 rename("/tmp/fencepost-conform-x7/log.new", …) = 0 (DELAYED)`
fn in_words(line: &str) -> String {
    const LONGEST: usize = 100;
    let call = line.split_once(' ').map_or(line, |(_, call)| call).trim();
    let ends = [" <unfinished", ") = ", ")  "];
    let call = ends.iter().filter_map(|end| call.find(end)).min().map_or(call, |end| &call[..end]);
    let mut words = String::new();
    // Shorten each path in a directory of the run.
    for (index, part) in call.split(process::PREFIX).enumerate() {
        if index == 0 {
            words.push_str(part);
            continue;
        }
        words.truncate(words.rfind(['"', '<']).map_or(0, |quote| quote + 1));
        words.push_str("CONFORM_DIR");
        words.push_str(part.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric()));
    }
    format!("{})", cut(&words, LONGEST).trim_end_matches(')'))
}

/// Whether this line is the beginning of a step: `4711 write(3</data/log>, …`.
fn begins(line: &str) -> bool {
    let Some((number, call)) = line.split_once(' ') else { return false };
    let name = call.trim_start().split('(').next().unwrap_or_default();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    number.bytes().all(|byte| byte.is_ascii_digit()) && call.contains('(') && is_name && !call.contains(INSIDE)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use tempfile::NamedTempFile;

    use super::{Counted, HELD, Strace, attached, begins, has_ended, in_words};
    use crate::adapters::process::Program;
    use crate::subject::Steps;
    use crate::wait;

    #[test]
    fn a_step_is_counted_when_it_begins() {
        assert!(begins("19463 write(3</tmp/x>, \"\"..., 1 <unfinished ...>\n"));
        assert!(begins("19463 rename(\"a\", \"b\")   = 0 (DELAYED)\n"));
        assert!(begins("7     fsync(3</tmp/x>"), "held");
        assert!(!begins("19463 <... write resumed>) = 1 (DELAYED)\n"));
        assert!(!begins("19463 +++ killed by SIGKILL +++\n"));
        assert!(!begins("19463 write(5<anon_inode:[eventfd]>, \"\"..., 8) = 8 (DELAYED)\n"), "only wakes a thread");
        assert!(!begins(""));
        assert!(!begins("194"));
    }

    #[test]
    fn the_last_step_is_told_unless_it_was_done() {
        let told = |lines: &str| {
            let mut file = NamedTempFile::new().unwrap();
            file.write_all(lines.as_bytes()).unwrap();
            let mut counted = Counted { output: file.reopen().unwrap(), rest: Vec::new(), made: 0, latest: None };
            let (made, latest) = counted.look();
            assert_eq!(made, 2, "{lines}");
            latest.map(|line| in_words(&line))
        };
        let first = "7 write(3</log>, \"\"..., 1) = 1 (DELAYED)\n";
        let held = "7 fsync(3</log>";
        assert_eq!(told(&format!("{first}{held}")).as_deref(), Some("fsync(3</log>)"));
        let killed = format!("{first}{held} <unfinished ...>\n7 +++ killed by SIGKILL +++\n");
        assert_eq!(told(&killed).as_deref(), Some("fsync(3</log>)"));
        assert_eq!(
            told(&format!("{first}{held}) = ?\n7 +++ killed by SIGKILL +++\n")).as_deref(),
            Some("fsync(3</log>)")
        );
        assert_eq!(told(&format!("{first}{held}) = 0 (DELAYED)\n7 +++ killed by SIGKILL +++\n")), None);
        let other = format!("{first}{held} <unfinished ...>\n8 <... write resumed>) = 1 (DELAYED)\n");
        assert_eq!(told(&other).as_deref(), Some("fsync(3</log>)"), "another process");
        assert_eq!(told(&format!("{other}7 <... fsync resumed>) = 0 (DELAYED)\n")), None);
    }

    #[test]
    fn a_step_in_words() {
        let said = [
            (
                "7 rename(\"/tmp/fencepost-conform-x7Ab9c/log.new\", \"/tmp/fencepost-conform-x7Ab9c/log\"",
                "rename(\"CONFORM_DIR/log.new\", \"CONFORM_DIR/log\")",
            ),
            ("19463 fsync(3</tmp/fencepost-conform-x7Ab9c/log> <unfinished ...>\n", "fsync(3<CONFORM_DIR/log>)"),
            (
                "19463 sendto(9<socket:[26]>, \"\"..., 120, MSG_NOSIGNAL, NULL, 0) = 120 (DELAYED)\n",
                "sendto(9<socket:[26]>, \"\"..., 120, MSG_NOSIGNAL, NULL, 0)",
            ),
        ];
        for (line, words) in said {
            assert_eq!(in_words(line), words);
        }
        assert!(in_words(&format!("7 unlink(\"{}\"", "x".repeat(300))).chars().count() <= 101);
    }

    /// A program that waits for a line, then writes the letters of a word to a file, one by one, in a separate thread.
    fn writer(file: &std::path::Path) -> Program {
        let script = "
import os, sys, threading
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print('up', flush=True)
sys.stdin.readline()
def work():
    for letter in b'fencepost':
        os.write(file, bytes([letter]))
    os.rename(sys.argv[1], sys.argv[1] + '.done')
thread = threading.Thread(target=work)
thread.start()
thread.join()
print('done', flush=True)
sys.stdin.readline()
";
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        Program::start(command).unwrap()
    }

    #[test]
    fn a_program_can_be_killed_at_each_step() {
        let directory = tempfile::tempdir().unwrap();
        for step in 1..=11 {
            let file = directory.path().join(format!("f{step}"));
            let mut program = writer(&file);
            let child = program.child();
            let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let mut stdout = BufReader::new(stdout).lines();
            assert_eq!(stdout.next().unwrap().unwrap(), "up");
            let steps = Strace::watch(&program.processes()).unwrap();
            assert_eq!(steps.made(), 0);
            let began = Instant::now();
            stdin.write_all(b"go\n").unwrap();
            while steps.made() < step {
                assert!(began.elapsed() < wait::PATIENCE, "only {} steps", steps.made());
                wait::pause(Duration::from_micros(200));
            }
            program.kill().unwrap();
            assert!(began.elapsed() >= HELD * u32::try_from(step - 1).unwrap(), "steps are held");
            // A stall of the machine lets the program get past `step`. It never gets less far, nor further than
            // was counted.
            let made = usize::try_from(steps.made()).unwrap();
            let written = fs::read(&file).map_or_else(|_| 10, |letters| letters.len());
            assert!(made >= usize::try_from(step).unwrap());
            assert!(written + 1 >= made.min(10) && written <= made, "killed at {made}, and {written} were done");
        }
    }

    #[test]
    fn one_of_several_that_has_just_ended_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let mut program = writer(&directory.path().join("f"));
        let mut up = String::new();
        BufReader::new(program.child().stdout.take().unwrap()).read_line(&mut up).unwrap();
        let mut processes = program.processes();
        processes.insert(0, i32::MAX);
        assert_eq!(Strace::watch(&processes).unwrap().made(), 0);
    }

    #[test]
    fn who_is_there_and_cannot_be_traced_has_not_ended() {
        let line = |number: u32, why: &str| format!("strace: attach: ptrace(PTRACE_SEIZE, {number}): {why}\n");
        let here = std::process::id();
        assert!(!has_ended(&line(here, "Operation not permitted")));
        assert!(has_ended(&line(here, "No such process")), "it says so");
        assert!(has_ended(&line(i32::MAX.unsigned_abs(), "Operation not permitted")), "nobody has this number");
        assert!(!has_ended("strace: Process 7 attached\n"));
        let mut child = Command::new("true").spawn().unwrap();
        let ended = line(child.id(), "Operation not permitted");
        wait::until("a process that nobody has waited for", wait::PATIENCE, || has_ended(&ended).then_some(()));
        child.wait().unwrap();

        let refused = attached(std::io::Cursor::new(line(here, "Operation not permitted")), 2, wait::PATIENCE);
        assert!(refused.is_err_and(|why| why.contains("SYS_PTRACE")));
        let one = format!("{}strace: Process 7 attached\n", line(here, "No such process"));
        assert_eq!(attached(std::io::Cursor::new(one), 2, wait::PATIENCE), Ok(()));
    }

    #[test]
    fn strace_is_not_waited_for_without_a_limit() {
        let (silent, _open) = std::io::pipe().unwrap();
        let why = attached(BufReader::new(silent), 1, Duration::from_millis(20)).unwrap_err();
        assert!(why.starts_with("strace was not attached after 20ms"), "{why}");
    }

    #[test]
    fn whoever_cannot_be_watched_is_named() {
        let gone = Strace::watch(&[]).map(drop).unwrap_err();
        assert!(gone.contains("none of its processes"), "{gone}");
        // No process has a number this high.
        let gone = Strace::watch(&[i32::MAX]).map(drop).unwrap_err();
        assert!(gone.contains("strace cannot watch") && gone.contains("No such process"), "{gone}");
    }
}
