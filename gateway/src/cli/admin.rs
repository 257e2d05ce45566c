//! Arguments of administrators' commands, and the commands `fencepost fence rotate` and `fencepost reload`.

use std::future::Future;
use std::path::PathBuf;

use clap::Args;
use fencepost_client::{Admin, Error};
use fencepost_core::wire::{RotateAllRequest, RotatePrefixRequest, RotateRequest, RotatedAnswer, RotatedEngine};
use fencepost_core::{Issuer, Resource};

use super::exit::{self, Failed};
use crate::quantity::Span;

/// Where the admin listener is.
#[derive(Args, Clone)]
pub(super) struct AdminArgs {
    /// The gateway's Unix socket for administrators
    #[arg(long, value_name = "PATH", env = "FENCEPOST_ADMIN_SOCKET", default_value = "./fencepost-data/admin.sock")]
    admin_socket: PathBuf,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: Span,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl AdminArgs {
    /// Makes calls and waits for them.
    pub(super) fn call<T, F: Future<Output = Result<T, Error>>>(
        &self,
        call: impl FnOnce(Admin) -> F,
    ) -> Result<T, Failed> {
        if self.timeout.0.is_zero() {
            return Err(Failed::usage("--timeout must be longer than 0"));
        }
        let admin = Admin::new(&self.admin_socket, self.timeout.0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::other)?;
        Ok(runtime.block_on(call(admin))?)
    }
}

/// Whose generation ends.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// Resource whose generation ends
    #[arg(value_parser = Resource::new)]
    resource: Option<Resource>,
    /// Every resource that has a fence and whose name starts with this; one first seen later is not covered
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// Every resource, also those never seen
    #[arg(long)]
    all: bool,
}

#[derive(Args)]
pub(super) struct Rotate {
    #[command(flatten)]
    target: Target,
    /// Generation that ends, as `fence show` prints it; if it is not the current one nothing happens
    #[arg(long, value_name = "GENERATION")]
    from: u32,
    /// Why; written to the audit log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Lock service that numbers the resource from now on [default: whichever comes first]
    #[arg(long, value_name = "KIND:INCARNATION", value_parser = Issuer::new, conflicts_with = "all")]
    issuer: Option<Issuer>,
    #[command(flatten)]
    admin: AdminArgs,
}

impl Rotate {
    pub(super) fn run(self) -> Result<(), Failed> {
        let Rotate { target: Target { resource, prefix, .. }, from, reason, issuer, admin } = self;
        let rotated = match (resource, prefix) {
            (_, Some(prefix)) => {
                return rotate_prefix(&admin, RotatePrefixRequest { prefix, from, reason, issuer, after: None });
            }
            (Some(resource), None) => {
                admin.call(async |admin| admin.rotate(&resource, &RotateRequest { from, reason, issuer }).await)?
            }
            (None, None) => admin.call(async |admin| admin.rotate_all(&RotateAllRequest { from, reason }).await)?,
        };
        if admin.json {
            return super::print(&serde_json::to_string(&rotated).map_err(Failed::other)?);
        }
        let RotatedAnswer { resource, generation, engines } = rotated;
        for RotatedEngine { engine, generation, rotated } in engines {
            let done = if rotated { "rotated" } else { "left as it is" };
            exit::note(&format!("engine {engine}: {done}, base generation {generation}"));
        }
        let what = resource.map_or_else(|| "every resource".to_owned(), |resource| resource.to_string());
        super::print(&format!("{what}: generation {generation} from now on; older tokens are refused"))
    }
}

/// Rotates page by page, with progress on standard error.
fn rotate_prefix(admin: &AdminArgs, mut request: RotatePrefixRequest) -> Result<(), Failed> {
    let (mut rotated, mut left) = (0, 0);
    loop {
        let page = match admin.call(async |admin| admin.rotate_prefix(&request).await) {
            Err(failed) if rotated > 0 => return Err(failed.after(&format!("{rotated} resources were rotated, then"))),
            page => page?,
        };
        rotated += page.rotated;
        left += page.left;
        match page.next {
            Some(next) => {
                exit::note(&format!("{rotated} rotated so far, up to {next}"));
                request.after = Some(next);
            }
            None => break,
        }
    }
    if admin.json {
        return super::print(&serde_json::json!({"rotated": rotated, "left": left}).to_string());
    }
    let left = match left {
        0 => String::new(),
        left => format!(", {left} in another generation left as they are"),
    };
    let rotated = if rotated == 1 { "1 resource".to_owned() } else { format!("{rotated} resources") };
    super::print(&format!("{rotated} rotated{left}; resources first seen later are not covered"))
}

#[derive(Args)]
pub(super) struct Reload {
    #[command(flatten)]
    admin: AdminArgs,
}

impl Reload {
    pub(super) fn run(self) -> Result<(), Failed> {
        let answer = self.admin.call(async |admin| admin.reload().await)?;
        if self.admin.json {
            return super::print(&serde_json::to_string(&answer).map_err(Failed::other)?);
        }
        for setting in &answer.needs_restart {
            exit::note(&format!("takes effect at the next start only: {setting}"));
        }
        match answer.changed.as_slice() {
            [] => super::print("no rule has changed"),
            changed => super::print(&changed.join("\n")),
        }
    }
}
