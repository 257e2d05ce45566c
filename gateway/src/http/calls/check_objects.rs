//! `POST /v1/admin/objects/check`: compare the index of objects with the storage.

use fencepost_core::ProblemKind;
use fencepost_core::wire::{ObjectDifference, ObjectsCheckAnswer, ObjectsCheckRequest};
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
use fencepost_objects::Difference;

pub(super) struct CheckObjects(ObjectsCheckRequest);

impl AdminCall for CheckObjects {
    const ROUTE: Route =
        Route::new(Method::POST, "/v1/admin/objects/check", "compare the index of objects with the storage")
            .with_body();
    const ACTION: &'static str = "check-objects";

    fn decode(request: Request<'_>) -> Result<CheckObjects, Problem> {
        request.json(r#"{"bucket": "reports"}"#).map(CheckObjects)
    }

    fn audit(&self, entry: Entry) -> Entry {
        let CheckObjects(asked) = self;
        entry.with("bucket", asked.bucket.as_deref()).with("after", asked.after.as_deref()).with("adopt", asked.adopt)
    }

    async fn act(call: Permitted<CheckObjects>, gateway: &Gateway) -> Result<(Answer, Facts), Problem> {
        let CheckObjects(ObjectsCheckRequest { bucket, after, adopt }) = call.into_inner();
        let (checked, next) =
            objects(gateway)?.check_next(bucket.as_deref(), after.as_deref(), adopt).await.map_err(of_objects)?;
        let differences: Vec<_> = checked.differences.into_iter().map(difference).collect();
        let facts = vec![("differences", differences.len().into()), ("mended", checked.repaired.into())];
        let answer = ObjectsCheckAnswer { looked_at: checked.looked_at, differences, mended: checked.repaired, next };
        Ok((Answer::json_bytes(answer::json(&answer)), facts))
    }

    fn describe() -> Details {
        Details::of("admin")
            .body::<ObjectsCheckRequest>(json!({"adopt": false}))
            .json::<ObjectsCheckAnswer>(200, "One page of names was compared.", Headers::new())
            .refers_to::<ObjectDifference>()
            .problems(&[ProblemKind::NoS3Face])
            .problems(&WRITING)
    }
}

fn difference(difference: Difference) -> ObjectDifference {
    let (name, what, detail) = match difference {
        Difference::Missing(key) => {
            (key.to_string(), "missing", "the index knows it, and no such file is there".into())
        }
        Difference::Unknown(key) => {
            (key.to_string(), "unknown", "the file is there, and the index does not know it".into())
        }
        Difference::Changed { key, how } => (key.to_string(), "changed", how),
        Difference::Unshown { key, why } => {
            (key.to_string(), "unshown", format!("committed, but not put in its place: {why}"))
        }
        Difference::Foreign { path, why } => (path, "foreign", why),
    };
    ObjectDifference { name, what: what.to_owned(), detail }
}
