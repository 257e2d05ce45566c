//! The calls of the HTTP interface, one file each: route, decoding, execution, answer, and the call's part of the API
//! document. A new call needs a file here and its lines in the list below.

mod admin;
mod json_value;
mod lease;
mod objects;
mod replayed;
mod request;
mod written;

mod abandon_outcome;
mod acquire_lock;
mod check_objects;
mod claim;
mod collect_objects;
mod delete_value;
mod force_release;
mod get_fence;
mod get_lock;
mod get_outcome;
mod get_value;
mod healthz;
mod issue_s3_credentials;
mod list_fences;
mod list_keys;
mod list_locks;
mod metrics;
mod open_api;
mod put_value;
mod readyz;
mod release_lock;
mod reload;
mod renew_lock;
mod rotate;
mod rotate_all;
mod rotate_prefix;
mod transact;

use bytes::Bytes;
use tokio::sync::SemaphorePermit;

use super::Gateway;
use super::answer::Answer;
use super::body::hold;
use super::caller::Caller;
use super::openapi::Details;
use super::permit::{Permitted, permit};
use super::problem::Problem;
use super::query::ListQuery;
use super::routes::{Query, Route};

pub(super) use request::Request;

/// A call of the interface, decoded from a request.
pub(super) trait HttpCall: Sized {
    /// Method and path of the call.
    const ROUTE: Route;

    /// Decodes the call from a request, or returns the problem of the request.
    fn decode(request: Request<'_>) -> Result<Self, Problem>;

    /// Executes the call and returns its answer.
    async fn execute(call: Permitted<Self>, context: &Context<'_>) -> Result<Answer, Problem>;

    /// The call's part of the API document.
    fn describe() -> Details;
}

/// What a call is executed with.
pub(super) struct Context<'c> {
    pub(super) gateway: &'c Gateway,
    pub(super) caller: &'c Caller,
    /// The id of the request.
    pub(super) id: &'c str,
}

impl Context<'_> {
    /// Checks that there is room for an answer that must be sent once its call is executed. The permits limit how many
    /// calls are past this check at once, so that they do not all count on the same room.
    async fn room_for_an_answer(&self) -> Result<[Option<SemaphorePermit<'_>>; 2], Problem> {
        let of_caller = self.caller.share.turn().await?;
        // The semaphore is never closed.
        let turn = self.gateway.makers.acquire().await.ok();
        hold(Bytes::from_static(b"{}"), &self.gateway.answers).map(|_| [of_caller, turn])
    }
}

/// decode → permit → store → reply
async fn answer<C: HttpCall>(request: Request<'_>, context: &Context<'_>) -> Result<Answer, Problem> {
    match C::ROUTE.query {
        Query::Parameters => {}
        Query::Nothing => ListQuery::none(request.head.uri.query())?,
    }
    let call = C::decode(request)?;
    let permitted = permit(&context.caller.identity, call)?;
    C::execute(permitted, context).await
}

/// Makes the table of routes, and dispatches by a `match`. The futures of frequent calls are part of their request's
/// future. Those of the others are boxed: they are larger, and a request's future is moved several times.
macro_rules! calls {
    (frequent { $($often:ident::$frequent:ident,)* } others { $($file:ident::$call:ident,)* }) => {
        /// Which call a request makes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Endpoint {
            $($frequent,)*
            $($call,)*
        }

        /// Every route. HEAD is accepted wherever GET is.
        pub(crate) const ROUTES: &[(Endpoint, Route)] = &[
            $((Endpoint::$frequent, <$often::$frequent as HttpCall>::ROUTE),)*
            $((Endpoint::$call, <$file::$call as HttpCall>::ROUTE),)*
        ];

        impl Endpoint {
            /// Answers a request for this call.
            pub(super) async fn answer(self, request: Request<'_>, context: &Context<'_>) -> Result<Answer, Problem> {
                match self {
                    $(Endpoint::$frequent => answer::<$often::$frequent>(request, context).await,)*
                    $(Endpoint::$call => Box::pin(answer::<$file::$call>(request, context)).await,)*
                }
            }

            /// The call's part of the API document.
            pub(super) fn describe(self) -> Details {
                match self {
                    $(Endpoint::$frequent => <$often::$frequent as HttpCall>::describe(),)*
                    $(Endpoint::$call => <$file::$call as HttpCall>::describe(),)*
                }
            }
        }
    };
}

calls! {
    frequent {
        put_value::PutValue,
        get_value::GetValue,
        delete_value::DeleteValue,
    }
    others {
        list_keys::ListKeys,
        claim::Claim,
        transact::Transact,
        get_fence::GetFence,
        list_fences::ListFences,
        renew_lock::RenewLock,
        acquire_lock::AcquireLock,
        release_lock::ReleaseLock,
        get_lock::GetLock,
        list_locks::ListLocks,
        issue_s3_credentials::IssueS3Credentials,
        abandon_outcome::AbandonOutcome,
        get_outcome::GetOutcome,
        rotate::Rotate,
        rotate_prefix::RotatePrefix,
        rotate_all::RotateAll,
        force_release::ForceRelease,
        reload::Reload,
        check_objects::CheckObjects,
        collect_objects::CollectObjects,
        healthz::Healthz,
        readyz::Readyz,
        metrics::Metrics,
        open_api::OpenApi,
    }
}
