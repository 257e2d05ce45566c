//! A lock service that runs a program and reads the token from its output.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{Issuer, Token};
use percent_encoding::percent_decode_str;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::list::{Backend, Connecting};
use super::url::wrong;
use super::{Acquired, Capabilities, Kept, Lease, LockBackend, LockError, LockUrl, Wanted};
use crate::Moment;

/// The minimum time that a program may run, however short the wait is.
const LEAST: Duration = Duration::from_secs(5);

/// How long its pipes may stay open after it exits: a process that it left behind may hold them.
const LINGER: Duration = Duration::from_millis(200);

/// How much of its output is kept.
const MOST_SAID: u64 = 4096;

/// Exit code: another holder has the lock.
const BUSY: i32 = 8;

/// The issuer, unless the program prints one.
const ISSUER: &str = "exec:caller";

pub(super) const BACKEND: Backend = Backend {
    scheme: "exec",
    aliases: &[],
    example: "exec:/usr/local/bin/next-token?arg=orders",
    encrypted: None,
    number: "the first word that the program prints, as it stands; `2:34` in generation 2",
    waiting: "as the program does; it is killed when the wait is over",
    breaks: "whatever breaks the program's numbers; rotate",
    connect,
};

const CAPABILITIES: Capabilities =
    Capabilities { fair: false, watch: false, floor: false, lift: false, min_ttl: Duration::ZERO, detachable: true };

struct Exec {
    program: String,
    arguments: Vec<String>,
    service: String,
}

fn connect(url: LockUrl) -> Connecting {
    Box::pin(async move {
        url.only(&["arg"])?;
        let program = program(&url.text).ok_or_else(|| wrong(&url.to_string(), "it names no program"))?;
        let service = format!("exec:{program}");
        let arguments = url.query.into_iter().map(|(_, value)| value).collect();
        Ok(Arc::new(Exec { program, arguments, service }) as Arc<dyn LockBackend>)
    })
}

/// The part between `exec:` and the settings; an absolute path keeps its slash.
fn program(url: &str) -> Option<String> {
    let (_, rest) = url.split_once(':')?;
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let program = rest.split('?').next()?;
    let program = percent_decode_str(program).decode_utf8().ok()?;
    (!program.is_empty()).then(|| program.into_owned())
}

/// The result of a finished program.
struct Ended {
    status: ExitStatus,
    output: Vec<u8>,
    complaints: Vec<u8>,
}

/// A running program, with all processes it started. Killed if it is dropped before it exits.
struct Running {
    child: Child,
    group: Option<Pid>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // The program may be exiting right now; it is not reaped yet, so the process id is still its own.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Running {
    async fn end(mut self) -> std::io::Result<Ended> {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let (mut output, mut complaints) = (Vec::new(), Vec::new());
        let status = {
            let reading = async { tokio::join!(read(stdout, &mut output), read(stderr, &mut complaints)) };
            tokio::pin!(reading);
            tokio::select! {
                status = self.child.wait() => {
                    // Its output is in the pipes already.
                    let _ = timeout(LINGER, reading).await;
                    status
                }
                _ = &mut reading => self.child.wait().await,
            }
        };
        self.group = None;
        Ok(Ended { status: status?, output, complaints })
    }
}

/// Keeps the beginning of the output. The rest is read and discarded, so that the program does not block on a full
/// pipe.
async fn read(pipe: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else { return };
    // A broken pipe has no more output.
    if (&mut pipe).take(MOST_SAID).read_to_end(into).await.is_ok() {
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
}

impl Exec {
    fn failed(&self, why: String) -> LockError {
        LockError::Failed { service: self.service.clone(), why }
    }

    fn start(&self, wanted: &Wanted<'_>) -> Result<Running, LockError> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env("FENCEPOST_RESOURCE", wanted.name.as_str())
            .env("FENCEPOST_HOLDER", wanted.holder.as_str())
            .env("FENCEPOST_FLOOR", wanted.floor.to_string())
            .env("FENCEPOST_GENERATION", wanted.generation.to_string())
            .env("FENCEPOST_TTL_MS", wanted.ttl.as_millis().to_string())
            .env("FENCEPOST_WAIT_MS", wanted.wait.as_millis().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn().map_err(|error| {
            self.failed(format!("it cannot be started: {error}. Give the path of a program, or a name found in PATH"))
        })?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Running { child, group })
    }

    /// The token and its issuer, from the first line.
    fn token(&self, output: &[u8]) -> Result<(Token, Issuer), LockError> {
        let output = String::from_utf8_lossy(output);
        let line = output.lines().next().unwrap_or_default().trim_end();
        if line.is_empty() {
            return Err(self.failed("it ended well, but its first line is empty; it prints the number there".into()));
        }
        let (token, issuer) = line.split_once(' ').unwrap_or((line, ISSUER));
        // Only for programs: one may print `$FENCEPOST_GENERATION` in front of its number even if the generation is 0.
        let bare = token.strip_prefix("0:").filter(|number| !number.contains(':'));
        let token = bare.unwrap_or(token).parse().map_err(|_| {
            let shown: String = line.chars().take(100).collect();
            let form = "a number from 1 to 18446744073709551615, with its generation as in 2:34 unless that is 0, and \
                        perhaps a space and the issuer";
            self.failed(format!("its first line is `{}`; it should be {form}", shown.escape_debug()))
        })?;
        let issuer = Issuer::new(issuer.trim())
            .map_err(|error| self.failed(format!("the issuer `{}` cannot be used: {error}", issuer.escape_debug())))?;
        Ok((token, issuer))
    }
}

#[async_trait]
impl LockBackend for Exec {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn acquire(&self, wanted: &Wanted<'_>) -> Result<Acquired, LockError> {
        let since = Moment::now();
        let limit = wanted.wait.max(LEAST);
        let running = self.start(wanted)?;
        let Ok(ended) = timeout(limit, running.end()).await else {
            let why = format!("it did not end within {} s, and was killed", limit.as_secs_f64());
            return Err(LockError::Unreachable { service: self.service.clone(), why });
        };
        let ended = ended.map_err(|error| self.failed(format!("its end cannot be seen: {error}")))?;
        match ended.status.code() {
            Some(0) => {}
            Some(BUSY) => return Ok(Acquired::Busy),
            _ => {
                let complaints = String::from_utf8_lossy(&ended.complaints);
                return Err(self.failed(match complaints.trim() {
                    "" => format!("it ended with {} and said nothing on stderr", ended.status),
                    complaints => format!("it ended with {}: {complaints}", ended.status),
                }));
            }
        }
        let (token, issuer) = self.token(&ended.output)?;
        Ok(Acquired::Held(Lease::of_token(wanted, token, issuer, since)))
    }

    async fn verify(&self, _: &Lease) -> Result<Kept, LockError> {
        Ok(Kept::Kept)
    }

    async fn renew(&self, _: &Lease) -> Result<Kept, LockError> {
        Ok(Kept::Kept)
    }

    async fn release(&self, _: Lease) -> Result<(), LockError> {
        Ok(())
    }
}
