//! What administrators ask about objects.

use std::sync::Arc;

use fencepost_core::wire::{
    ObjectDifference, ObjectsCheckAnswer, ObjectsCheckRequest, ObjectsCollectAnswer, ObjectsCollectRequest,
};
use fencepost_core::{ProblemKind, Timestamp};
use fencepost_objects::layout::LayoutError;
use fencepost_objects::{Difference, ObjectError, Objects};

use super::Gateway;
use super::problem::Problem;

impl Gateway {
    fn objects(&self) -> Result<&Arc<Objects>, Problem> {
        self.objects.as_ref().ok_or_else(|| {
            Problem::new(ProblemKind::NoS3Face, "this gateway keeps no objects")
                .advice("Start it with --s3-listen and --objects.")
        })
    }

    pub(super) async fn check_objects(&self, asked: ObjectsCheckRequest) -> Result<ObjectsCheckAnswer, Problem> {
        let objects = self.objects()?;
        let ObjectsCheckRequest { bucket, after, adopt } = asked;
        let (checked, next) =
            objects.check_next(bucket.as_deref(), after.as_deref(), adopt).await.map_err(of_objects)?;
        let differences = checked.differences.into_iter().map(told).collect();
        Ok(ObjectsCheckAnswer { looked_at: checked.looked_at, differences, mended: checked.mended, next })
    }

    pub(super) async fn collect_objects(&self, asked: ObjectsCollectRequest) -> Result<ObjectsCollectAnswer, Problem> {
        let objects = self.objects()?;
        let before = Timestamp(Timestamp::now().0.saturating_sub(asked.older_than_s.saturating_mul(1000)));
        // First, because what they leave is removed with them.
        let uploads = objects.abandoned_uploads(before, asked.dry_run).await.map_err(of_objects)?;
        let left = objects.leftovers(before, asked.dry_run).await.map_err(of_objects)?;
        Ok(ObjectsCollectAnswer { found: left.refs, removed: left.removed, uploads })
    }
}

fn told(difference: Difference) -> ObjectDifference {
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

fn of_objects(error: ObjectError) -> Problem {
    match error {
        ObjectError::Failure(failure) => failure.into(),
        ObjectError::Read(error) => error.into(),
        ObjectError::Layout(LayoutError::NoBucket(_)) | ObjectError::Name(_) => {
            Problem::new(ProblemKind::MalformedBody, error.to_string())
        }
        error => Problem::new(ProblemKind::Unavailable, error.to_string()),
    }
}
