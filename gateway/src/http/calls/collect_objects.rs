//! `POST /v1/admin/objects/collect`: remove bytes that belong to no object.

use fencepost_core::wire::{ObjectsCollectAnswer, ObjectsCollectRequest};
use fencepost_core::{ProblemKind, Timestamp};
use hyper::Method;
use serde_json::json;

use super::Request;
use super::admin::{AdminCall, Facts};
use super::objects::{objects, of_objects};
use crate::http::Gateway;
use crate::http::answer::{self, Answer};
use crate::http::audit::Entry;
use crate::http::openapi::{Details, Headers, WRITING};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct CollectObjects(ObjectsCollectRequest);

impl AdminCall for CollectObjects {
    const ROUTE: Route =
        Route::new(Method::POST, "/v1/admin/objects/collect", "remove bytes that belong to no object").with_body();
    const ACTION: &'static str = "collect-objects";

    fn decode(request: Request<'_>) -> Result<CollectObjects, Problem> {
        request.json(r#"{"older_than_s": 86400}"#).map(CollectObjects)
    }

    fn audit(&self, entry: Entry) -> Entry {
        entry.with("older_than_s", self.0.older_than_s).with("dry_run", self.0.dry_run)
    }

    async fn act(call: Permitted<CollectObjects>, gateway: &Gateway) -> Result<(Answer, Facts), Problem> {
        let (objects, CollectObjects(asked)) = (objects(gateway)?, call.into_inner());
        let before = Timestamp(Timestamp::now().0.saturating_sub(asked.older_than_s.saturating_mul(1000)));
        // Uploads first, so that the leftovers of removed uploads are removed too.
        let uploads = objects.abandoned_uploads(before, asked.dry_run).await.map_err(of_objects)?;
        let left = objects.leftovers(before, asked.dry_run).await.map_err(of_objects)?;
        let answer = ObjectsCollectAnswer { found: left.refs, removed: left.removed, uploads };
        let facts = vec![
            ("found", answer.found.into()),
            ("removed", answer.removed.into()),
            ("uploads", answer.uploads.into()),
        ];
        Ok((Answer::json_bytes(answer::json(&answer)), facts))
    }

    fn describe() -> Details {
        Details::of("admin")
            .body::<ObjectsCollectRequest>(json!({"older_than_s": 86400, "dry_run": true}))
            .json::<ObjectsCollectAnswer>(
                200,
                "Leftovers were counted, and removed unless it was a dry run.",
                Headers::new(),
            )
            .problems(&[ProblemKind::NoS3Face])
            .problems(&WRITING)
    }
}
