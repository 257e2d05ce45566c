//! Why a call failed, told apart by what became of the request.

/// The status codes of gRPC that are told apart.
const INVALID_ARGUMENT: u32 = 3;
const PERMISSION_DENIED: u32 = 7;
const RESOURCE_EXHAUSTED: u32 = 8;
const FAILED_PRECONDITION: u32 = 9;
const OUT_OF_RANGE: u32 = 11;
const UNIMPLEMENTED: u32 = 12;
const UNAUTHENTICATED: u32 = 16;

/// etcd's messages where one status code stands for several causes.
const NO_SPACE: &str = "database space exceeded";
const NO_USER: &str = "user name is empty";
const OLD_USERS: &str = "revision of auth store is old";
const WRONG_PASSWORD: &str = "authentication failed";
const TOO_MANY_OPERATIONS: &str = "too many operations";
const TOO_LARGE: [&str; 2] = ["request is too large", "received message larger than max"];
const TOO_MANY_REQUESTS: &str = "too many requests";
const LEARNER: &str = "rpc not supported for learner";

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// No member took the request. Nothing was done.
    #[error("{0}")]
    NotSent(String),
    /// etcd refused the request. Nothing was done.
    #[error("{why}")]
    Refused {
        /// The cause.
        refusal: Refusal,
        /// etcd's message.
        why: String,
    },
    /// etcd's database has reached its quota. It answers so before a request is done, but also *after* the one that
    /// reached the quota was done. Nothing more will be done.
    #[error("{0}")]
    NoSpace(String),
    /// The answer is larger than the caller reads.
    #[error("its answer has more than {limit} bytes")]
    Oversized {
        /// The limit of the caller.
        limit: usize,
    },
    /// The request may have been done, and may still be done later.
    #[error("{0}")]
    Unknown(String),
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The token is not valid, or no longer.
    Token,
    /// A user is needed, or the password is wrong.
    User,
    /// The user lacks a right.
    Permission,
    /// More comparisons or operations than the server's `--max-txn-ops`.
    TooManyOperations,
    /// More bytes than the server's `--max-request-bytes`.
    TooLarge,
    /// The revision was compacted, or does not exist yet.
    Revision,
    /// The server has too much to do.
    Busy,
    /// The server does not have this call.
    Unsupported,
    /// The server is in a state in which the call makes no sense.
    State,
    /// The request makes no sense to the server.
    Invalid,
}

impl Trouble {
    /// The meaning of a status of gRPC other than OK.
    pub(super) fn of_status(code: u32, message: String) -> Trouble {
        let says = |text: &str| message.contains(text);
        let refusal = match code {
            // A member that does not vote yet. The others take the request.
            _ if says(LEARNER) => return Trouble::NotSent(message),
            RESOURCE_EXHAUSTED if says(NO_SPACE) => return Trouble::NoSpace(message),
            RESOURCE_EXHAUSTED if says(TOO_MANY_REQUESTS) => Refusal::Busy,
            RESOURCE_EXHAUSTED | INVALID_ARGUMENT if TOO_LARGE.into_iter().any(says) => Refusal::TooLarge,
            INVALID_ARGUMENT if says(OLD_USERS) => Refusal::Token,
            INVALID_ARGUMENT if says(NO_USER) || says(WRONG_PASSWORD) => Refusal::User,
            INVALID_ARGUMENT if says(TOO_MANY_OPERATIONS) => Refusal::TooManyOperations,
            INVALID_ARGUMENT => Refusal::Invalid,
            UNAUTHENTICATED => Refusal::Token,
            PERMISSION_DENIED => Refusal::Permission,
            OUT_OF_RANGE => Refusal::Revision,
            FAILED_PRECONDITION => Refusal::State,
            UNIMPLEMENTED => Refusal::Unsupported,
            _ => return Trouble::Unknown(format!("{message} (gRPC status {code})")),
        };
        Trouble::Refused { refusal, why: message }
    }

    /// Returns whether etcd refused the request for this cause.
    pub fn is(&self, cause: Refusal) -> bool {
        matches!(self, Trouble::Refused { refusal, .. } if *refusal == cause)
    }

    /// Returns whether another member may answer.
    pub fn is_about_the_member(&self) -> bool {
        matches!(self, Trouble::NotSent(_) | Trouble::Unknown(_))
    }

    /// Returns whether the call may succeed with a new token.
    pub(super) fn is_about_the_token(&self) -> bool {
        self.is(Refusal::Token) || self.is(Refusal::User)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_definite_refusals_are_refusals() {
        for (code, message, refusal) in [
            (3, "etcdserver: too many operations in txn request", Refusal::TooManyOperations),
            (3, "etcdserver: request is too large", Refusal::TooLarge),
            (3, "etcdserver: user name is empty", Refusal::User),
            (3, "etcdserver: authentication failed, invalid user ID or password", Refusal::User),
            (3, "etcdserver: revision of auth store is old", Refusal::Token),
            (3, "etcdserver: duplicate key given in txn request", Refusal::Invalid),
            (7, "etcdserver: permission denied", Refusal::Permission),
            (8, "etcdserver: too many requests", Refusal::Busy),
            (8, "grpc: received message larger than max (3 vs. 2)", Refusal::TooLarge),
            (9, "etcdserver: authentication is not enabled", Refusal::State),
            (11, "etcdserver: mvcc: required revision has been compacted", Refusal::Revision),
            (12, "unknown service", Refusal::Unsupported),
            (16, "etcdserver: invalid auth token", Refusal::Token),
        ] {
            let trouble = Trouble::of_status(code, message.to_owned());
            assert!(trouble.is(refusal) && !trouble.is_about_the_member(), "{trouble:?}");
        }
    }

    #[test]
    fn a_member_that_does_not_vote_took_nothing() {
        for code in [9, 14] {
            let trouble = Trouble::of_status(code, "etcdserver: rpc not supported for learner".to_owned());
            assert!(matches!(trouble, Trouble::NotSent(_)), "{trouble:?}");
        }
    }

    #[test]
    fn everything_else_may_have_been_done() {
        let full = Trouble::of_status(8, "etcdserver: mvcc: database space exceeded".to_owned());
        assert!(matches!(full, Trouble::NoSpace(_)));
        for (code, message) in [
            (1, "context canceled"),
            (2, "etcdserver: something new"),
            (4, "context deadline exceeded"),
            (8, "something else"),
            (13, "internal"),
            (14, "etcdserver: leader changed"),
            (14, "etcdserver: request timed out"),
            (15, "etcdserver: corrupt cluster"),
            (99, ""),
        ] {
            let trouble = Trouble::of_status(code, message.to_owned());
            assert!(matches!(trouble, Trouble::Unknown(_)) && trouble.is_about_the_member(), "{trouble:?}");
        }
    }
}
