//! Why something was not done with an object.

use fencepost_core::{Key, Refusal, Token};
use fencepost_store::{Changed, Failure, ObjectOutcome, ReadError, WrongResource};

use crate::layout::LayoutError;

/// Why something was not done with an object. A refusal by the fence is among them, because no caller goes on after it;
/// an unknown outcome is one of its own.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// Fences refused; never empty.
    #[error("refused by the fence")]
    Refused(Vec<Refusal>),
    /// The caller's own condition does not hold.
    #[error("a condition of the request does not hold")]
    ConditionFailed {
        /// The fence now.
        fence: Option<Token>,
    },
    /// There is no such object.
    #[error("there is no object `{0}`")]
    NoObject(String),
    /// There is no such upload, or it is over.
    #[error("there is no such upload; it may have been completed or aborted")]
    NoUpload,
    /// A list of parts does not fit the upload.
    #[error("{0}")]
    InvalidPart(String),
    /// The parts are not in order.
    #[error("the parts must be given in ascending order of their number")]
    PartOrder,
    /// A part other than the last is too small.
    #[error("part {number} has {size} bytes, and every part but the last needs at least {least}")]
    PartTooSmall {
        /// Which part.
        number: u16,
        /// Its bytes.
        size: u64,
        /// The least.
        least: u64,
    },
    /// The body ended early, or went on too long.
    #[error("the body has {found} bytes, and {expected} were announced")]
    Incomplete {
        /// What was announced.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// The body could not be read to its end.
    #[error("the body could not be read: {0}")]
    Body(String),
    /// What arrived is not what was sent.
    #[error("{0}")]
    BadDigest(String),
    /// Larger than allowed.
    #[error("the object would have more than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The bytes were given up by the collector before they were published.
    #[error("the upload was so slow that its bytes were collected; send it again")]
    Collected,
    /// The caller's credentials have expired.
    #[error(
        "These credentials have expired, and nothing was written. Ask for new ones for the same lease and token \
         (fencepost s3 credentials); the lock need not be taken again."
    )]
    Expired,
    /// The caller's credentials were taken back.
    #[error("These credentials are no longer known here, and nothing was written. Ask for new ones.")]
    Revoked,
    /// The bucket has objects in it.
    #[error("the bucket is not empty")]
    NotEmpty,
    /// An earlier write of the same object is committed, but the storage could not show it yet.
    #[error(
        "an earlier write of `{key}` is committed but could not be put in its place: {why}. Mend the cause; the next write of it tries again. If its bytes are lost, `fencepost objects check --adopt` takes what the storage has"
    )]
    Blocked {
        /// Which object.
        key: Key,
        /// What the storage said.
        why: String,
    },
    /// This write is committed, but the storage could not show it yet.
    #[error(
        "the write of `{key}` is committed and served from here, but could not be put in its place: {why}. Mend the cause; the next write of it, or a restart, tries again"
    )]
    Unshown {
        /// Which object.
        key: Key,
        /// What the storage said.
        why: String,
    },
    /// The file is not the one that the index knows.
    #[error("`{key}` was changed or removed in the storage behind the gateway: {why}. Run `fencepost objects check`")]
    Changed {
        /// Which object.
        key: Key,
        /// How it differs.
        why: String,
    },
    /// The name cannot be that of an object.
    #[error("{0}")]
    Name(String),
    /// The storage.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Not applied, or unknown.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// Could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The task that did it ended without a word.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
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
    /// Is it certain that nothing was committed, so that nothing points to the bytes that were staged for it?
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

    /// Others replaced a part meanwhile.
    pub(crate) fn part_changed() -> ObjectError {
        ObjectError::InvalidPart("a part was replaced by others at the same time".to_owned())
    }
}

/// A change that was made, or why none was.
pub(crate) fn done(outcome: Result<ObjectOutcome, WrongResource>) -> Result<Changed, ObjectError> {
    match outcome? {
        ObjectOutcome::Done(changed) => Ok(changed),
        ObjectOutcome::Refused(refusals) => Err(ObjectError::Refused(refusals)),
        ObjectOutcome::ConditionFailed { fence } => Err(ObjectError::ConditionFailed { fence }),
        ObjectOutcome::Collected => Err(ObjectError::Collected),
        ObjectOutcome::NoUpload => Err(ObjectError::NoUpload),
        ObjectOutcome::PartChanged => Err(ObjectError::part_changed()),
    }
}
