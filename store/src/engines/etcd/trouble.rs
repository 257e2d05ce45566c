//! What a failed call means for a commit, and what to do about it.

use fencepost_remote::etcd::{Refusal, Trouble};

/// What became of the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing was written.
    Nothing(String),
    /// It has more than etcd takes at once. Nothing was written.
    TooLarge(String),
    /// It was done or not, which shows now: nothing more will happen.
    Decided(String),
    /// It may have been done, and may still be done.
    Unknown(String),
}

pub(super) fn fate(trouble: &Trouble) -> Fate {
    let why = explained(trouble);
    match trouble {
        Trouble::NotSent(_) => Fate::Nothing(why),
        Trouble::Refused { refusal: Refusal::TooManyOperations | Refusal::TooLarge, .. } => Fate::TooLarge(why),
        Trouble::Refused { .. } => Fate::Nothing(why),
        Trouble::NoSpace(_) => Fate::Decided(why),
        Trouble::Oversized { .. } | Trouble::Unknown(_) => Fate::Unknown(why),
    }
}

/// The error and what to do about it.
pub(super) fn explained(trouble: &Trouble) -> String {
    let advice = match trouble {
        Trouble::NoSpace(_) => {
            "etcd takes no writes until there is room: compact and defragment it, or raise its --quota-backend-bytes, then \
             run `etcdctl alarm disarm`; docs/etcd.md says how"
        }
        Trouble::Oversized { .. } => "raise `max_bytes` in the URL to what the server has as --max-request-bytes",
        Trouble::Refused { refusal, .. } => match refusal {
            Refusal::User | Refusal::Token => "name a user and its password: etcd://user:password@host:port/prefix",
            Refusal::Permission => "the user needs the right to read and write the prefix; docs/etcd.md says how",
            Refusal::TooManyOperations => "lower `max_ops` in the URL to what the server has as --max-txn-ops",
            Refusal::TooLarge => "lower `max_bytes` in the URL, to 0.1 MiB below the server's --max-request-bytes",
            Refusal::Unsupported => "etcd 3.4 or later is needed",
            Refusal::Revision | Refusal::Busy | Refusal::State | Refusal::Invalid => return trouble.to_string(),
        },
        Trouble::NotSent(_) | Trouble::Unknown(_) => return trouble.to_string(),
    };
    format!("{trouble}; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(refusal: Refusal) -> Trouble {
        Trouble::Refused { refusal, why: "etcdserver: no".to_owned() }
    }

    #[test]
    fn only_what_may_have_been_done_is_unknown() {
        for (trouble, said) in [
            (Trouble::NotSent("refused".to_owned()), "refused"),
            (refused(Refusal::User), "etcd://user:password@"),
            (refused(Refusal::Permission), "docs/etcd.md"),
            (refused(Refusal::Busy), "etcdserver: no"),
        ] {
            let Fate::Nothing(why) = fate(&trouble) else { panic!("{trouble:?}") };
            assert!(why.contains(said), "{why}");
        }
        for refusal in [Refusal::TooManyOperations, Refusal::TooLarge] {
            assert!(matches!(fate(&refused(refusal)), Fate::TooLarge(why) if why.contains("`max_")));
        }
        assert!(
            matches!(fate(&Trouble::NoSpace("full".to_owned())), Fate::Decided(why) if why.contains("alarm disarm"))
        );
        assert!(matches!(fate(&Trouble::Unknown("cut".to_owned())), Fate::Unknown(_)));
        assert!(matches!(fate(&Trouble::Oversized { limit: 1 }), Fate::Unknown(_)));
    }
}
