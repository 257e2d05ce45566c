//! Shared parts of the administrators' calls about objects.

use fencepost_core::ProblemKind;

use crate::http::Gateway;
use crate::http::problem::Problem;
use fencepost_objects::layout::LayoutError;
use fencepost_objects::{ObjectError, Objects};

/// The objects that the gateway keeps, if it keeps any.
pub(super) fn objects(gateway: &Gateway) -> Result<&Objects, Problem> {
    gateway.objects.as_deref().ok_or_else(|| {
        Problem::new(ProblemKind::NoS3Face, "this gateway keeps no objects")
            .advice("Start it with --s3-listen and --objects.")
    })
}

/// The problem of a call about objects. An unknown bucket or an invalid name makes the body malformed.
pub(super) fn of_objects(error: ObjectError) -> Problem {
    match error {
        ObjectError::Failure(failure) => failure.into(),
        ObjectError::Read(error) => error.into(),
        ObjectError::Layout(LayoutError::NoBucket(_)) | ObjectError::Name(_) => {
            Problem::new(ProblemKind::MalformedBody, error.to_string())
        }
        error => Problem::new(ProblemKind::Unavailable, error.to_string()),
    }
}
