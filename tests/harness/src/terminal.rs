//! A pseudo-terminal with its own session.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::tcgetpgrp;

use fencepost_conformance::wait;

/// A pseudo-terminal. The program started on it leads the session, and is killed when this is dropped.
pub struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    leader: Child,
}

impl Terminal {
    /// Starts a program on a new terminal, as its foreground process. Variables set on `program` are passed on.
    pub fn start(program: &Command) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keyboard = openpt(flags).expect("there are pseudo-terminals");
        grantpt(&keyboard).expect("ours");
        unlockpt(&keyboard).expect("ours");
        let line = ioctl_tiocgptpeer(&keyboard, flags).expect("a pseudo-terminal has another end");
        let end = |line: &OwnedFd| Stdio::from(line.try_clone().expect("a descriptor can be copied"));
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program.get_program()).args(program.get_args());
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(end(&line)).stdout(end(&line)).stderr(end(&line));
        let leader = command.spawn().expect("setsid is a part of util-linux");
        let keyboard = File::from(keyboard);
        let mut output = keyboard.try_clone().expect("a descriptor can be copied");
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = screen.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The other end is closed when all processes on the terminal have exited.
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                shown.lock().push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        Terminal { keyboard, screen, leader }
    }

    /// Types text. `\x03` is Ctrl-C, `\x1a` Ctrl-Z.
    pub fn keys(&self, text: &str) {
        (&self.keyboard).write_all(text.as_bytes()).expect("a terminal takes what is typed");
    }

    /// All output so far.
    pub fn screen(&self) -> String {
        self.screen.lock().clone()
    }

    /// The process group in the foreground.
    pub fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.keyboard).ok()
    }

    /// The process id of the started program, which is also that of its group.
    pub fn leader(&self) -> Pid {
        Pid::from_child(&self.leader)
    }

    /// Waits for the program to exit.
    pub fn end(&mut self, limit: Duration) -> ExitStatus {
        wait::until("the program at the terminal to end", limit, || {
            self.leader.try_wait().expect("a child can be waited for")
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.leader.kill();
        let _ = self.leader.wait();
        if thread::panicking() {
            eprintln!("the terminal shows:\n{}", self.screen());
        }
    }
}
