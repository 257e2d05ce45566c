//! Errors of operations on objects.

use fencepost_core::{Key, Refusal, Token};
use fencepost_store::{Changed, Failure, ObjectOutcome, ReadError, Rejected, WrongResource};

use crate::layout::LayoutError;

/// Why an operation on an object failed. A refusal by the fence is one of the kinds, because no caller continues
/// after it. An unknown outcome is a kind of its own.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The fence refused; the list is never empty.
    #[error("refused by the fence")]
    Refused(Vec<Refusal>),
    /// A condition of the request does not hold.
    #[error("a condition of the request does not hold")]
    ConditionFailed {
        /// The current fence.
        fence: Option<Token>,
    },
    /// There is no such object.
    #[error("there is no object `{0}`")]
    NoObject(String),
    /// There is no such upload, or it has ended.
    #[error("there is no such upload; it may have been completed or aborted")]
    NoUpload,
    /// The list of parts does not match the upload.
    #[error("{0}")]
    InvalidPart(String),
    /// The parts are not in ascending order.
    #[error("the parts must be given in ascending order of their number")]
    PartOrder,
    /// A part other than the last is too small.
    #[error("part {number} has {size} bytes, and every part but the last needs at least {least}")]
    PartTooSmall {
        /// The number of the part.
        number: u16,
        /// Its size in bytes.
        size: u64,
        /// The smallest allowed size in bytes.
        least: u64,
    },
    /// The body is shorter or longer than announced.
    #[error("the body has {found} bytes, and {expected} were announced")]
    Incomplete {
        /// The announced length.
        expected: u64,
        /// The received length.
        found: u64,
    },
    /// Reading the body failed.
    #[error("the body could not be read: {0}")]
    Body(String),
    /// The received bytes do not match a promised digest.
    #[error("{0}")]
    BadDigest(String),
    /// The object exceeds the size limit.
    #[error("the object would have more than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The collector removed the bytes before they were published.
    #[error("the upload was so slow that its bytes were collected; send it again")]
    Collected,
    /// The caller's credentials have expired.
    #[error(
        "These credentials have expired, and nothing was written. Ask for new ones for the same lease and token \
         (fencepost s3 credentials); the lock need not be taken again."
    )]
    Expired,
    /// The caller's credentials were revoked.
    #[error("These credentials are no longer known here, and nothing was written. Ask for new ones.")]
    Revoked,
    /// The bucket has objects in it.
    #[error("the bucket is not empty")]
    NotEmpty,
    /// An earlier write of the same object is committed, but the storage could not publish it yet.
    #[error(
        "an earlier write of `{key}` is committed but could not be put in its place: {why}. Repair the cause; the next write of it tries again. If its bytes are lost, `fencepost objects check --adopt` takes what the storage has"
    )]
    Blocked {
        /// The object's name.
        key: Key,
        /// The storage's error.
        why: String,
    },
    /// This write is committed, but the storage could not publish it yet.
    #[error(
        "the write of `{key}` is committed and served from here, but could not be put in its place: {why}. Repair the cause; the next write of it, or a restart, tries again"
    )]
    Unshown {
        /// The object's name.
        key: Key,
        /// The storage's error.
        why: String,
    },
    /// The file is not the one recorded in the index.
    #[error("`{key}` was changed or removed in the storage behind the gateway: {why}. Run `fencepost objects check`")]
    Changed {
        /// The object's name.
        key: Key,
        /// What is different.
        why: String,
    },
    /// No object can have this name.
    #[error("{0}")]
    Name(String),
    /// The storage failed.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The commit was not applied, or its outcome is unknown.
    #[error(transparent)]
    Failure(Failure),
    /// The store could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// The task ended without reporting an outcome.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
}

impl From<Failure> for ObjectError {
    fn from(failure: Failure) -> ObjectError {
        match failure {
            Failure::Rejected(Rejected::WrongResource(wrong)) => wrong.into(),
            failure => ObjectError::Failure(failure),
        }
    }
}

impl From<ReadError> for ObjectError {
    fn from(error: ReadError) -> ObjectError {
        match error {
            ReadError::WrongResource(wrong) => wrong.into(),
            error => ObjectError::Read(error),
        }
    }
}

impl From<WrongResource> for ObjectError {
    fn from(wrong: WrongResource) -> ObjectError {
        ObjectError::Name(match wrong {
            WrongResource::Belongs { name, resource } => format!("`{name}` belongs to the resource `{resource}`"),
            WrongResource::Unused(resource) => format!("`{resource}` protects nothing of this request"),
            WrongResource::Name(error) => error.to_string(),
        })
    }
}

impl ObjectError {
    /// Returns whether certainly nothing was committed, so that no record refers to the staged bytes.
    pub(crate) fn is_surely_not_applied(&self) -> bool {
        match self {
            ObjectError::Unshown { .. } | ObjectError::Unknown(_) | ObjectError::Failure(Failure::Unknown(_)) => false,
            ObjectError::Refused(_)
            | ObjectError::Expired
            | ObjectError::Revoked
            | ObjectError::ConditionFailed { .. }
            | ObjectError::NoObject(_)
            | ObjectError::NoUpload
            | ObjectError::InvalidPart(_)
            | ObjectError::PartOrder
            | ObjectError::PartTooSmall { .. }
            | ObjectError::Incomplete { .. }
            | ObjectError::Body(_)
            | ObjectError::BadDigest(_)
            | ObjectError::TooLarge { .. }
            | ObjectError::Collected
            | ObjectError::NotEmpty
            | ObjectError::Blocked { .. }
            | ObjectError::Changed { .. }
            | ObjectError::Name(_)
            | ObjectError::Layout(_)
            | ObjectError::Failure(Failure::Rejected(_))
            | ObjectError::Read(_) => true,
        }
    }

    /// The error for a part that other requests kept replacing.
    pub(crate) fn part_changed() -> ObjectError {
        ObjectError::InvalidPart("a part was replaced by others at the same time".to_owned())
    }
}

/// Converts the outcome of a commit: the change, or the reason why there was none.
pub(crate) fn done(outcome: ObjectOutcome) -> Result<Changed, ObjectError> {
    match outcome {
        ObjectOutcome::Done(changed) => Ok(changed),
        ObjectOutcome::Refused(refusals) => Err(ObjectError::Refused(refusals)),
        ObjectOutcome::ConditionFailed { fence } => Err(ObjectError::ConditionFailed { fence }),
        ObjectOutcome::Collected => Err(ObjectError::Collected),
        ObjectOutcome::NoUpload => Err(ObjectError::NoUpload),
        ObjectOutcome::PartChanged => Err(ObjectError::part_changed()),
    }
}
