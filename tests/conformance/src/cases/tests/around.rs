//! Ways around the fence that no mutant of the reference uses.

use super::{reference, run_on};
use crate::answer::Answer;
use crate::manifest::Manifest;
use crate::op::{Op, Write};
use crate::reference::Service;
use crate::resource::FencedResource;
use crate::subject::{Around, Broken, Hook, Request, Subject};
use crate::token::Token;
use crate::verdict::{Level, Status};

type Said = fn(&Service, &Write) -> Answer;
type Then = fn(&Service, &Op);

/// The reference, with an action after each accepted operation, and a function that answers requests by other ways.
struct ByWays {
    resource: Service,
    then: Then,
    said: Said,
}

impl Subject for ByWays {
    fn describe(&self) -> String {
        "ways around".to_owned()
    }

    fn manifest(&self) -> &Manifest {
        self.resource.manifest()
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        let answer = self.resource.call(request)?;
        if answer.is_ok() {
            (self.then)(&self.resource, request.op);
        }
        Ok(answer)
    }

    fn has(&self, _: Hook) -> bool {
        false
    }

    fn hook(&self, _: Hook) -> Result<(), Broken> {
        Ok(())
    }

    fn bypasses(&self) -> Vec<Around> {
        vec![Around::Spelling("one way".to_owned()), Around::Request("the other".to_owned())]
    }

    fn bypass(&self, _: usize, request: &Request<'_>) -> Result<Answer, Broken> {
        let Op::Write(write) = request.op else { return Ok(Answer::Unsupported) };
        Ok((self.said)(&self.resource, write))
    }
}

/// Sets the value and the fence.
fn put(service: &Service, res: &str, token: u64, value: &str) -> Answer {
    let resource = service.reference();
    resource.hook(Hook::Reset).unwrap();
    FencedResource::write(resource, res, token, "h", value)
}

#[test]
fn another_way_must_have_been_answered_and_leave_value_and_fence() {
    let answers: [(Said, Status, &str); 6] = [
        (|_, _| Answer::error("not found"), Status::Pass, ""),
        (|_, _| Answer::unknown("reset"), Status::Unknown, "2 other ways were tried, and none was answered"),
        (|_, _| Answer::Unsupported, Status::NotApplicable, "none of the other ways"),
        // The value is unchanged: only the fence shows the violation.
        (
            |service, write| {
                let value = FencedResource::read(service.reference(), &write.res).value().flatten().unwrap().to_owned();
                put(service, &write.res, 2, &value)
            },
            Status::Fail,
            "The fence was 9. After a request by another way (one way) with token 5, a write with token 8 was accepted",
        ),
        (
            |service, write| match write.token.number() {
                Some(10) => put(service, &write.res, 1, &write.value),
                _ => Answer::error("old"),
            },
            Status::Fail,
            "(one way) with token 10, a write with token 8 was accepted",
        ),
        (
            |service, write| match write.token {
                Token::Absent => put(service, &write.res, 9, &write.value),
                _ => Answer::error("old"),
            },
            Status::Fail,
            "By another way (one way), a write with no token changed ",
        ),
    ];
    for (said, status, reason) in answers {
        let subject = ByWays { resource: reference(), then: |_, _| {}, said };
        let result = run_on(&subject, &["B05"], Level::L1).remove(0);
        assert_eq!(result.status, status, "{}", result.reason);
        assert!(result.reason.contains(reason), "{}", result.reason);
        if status == Status::Pass {
            assert_eq!(
                result.remark.as_deref(),
                Some(
                    "tried: 1 other spellings of a write, 1 other requests; not accepted under a newer token either, so nobody saw \
                     what they do: the other"
                )
            );
        }
    }
}

#[test]
fn what_is_done_under_a_newer_token_and_raises_no_fence_is_found_before_anything_happens_at_once() {
    let odd: [(&str, Then); 2] = [
        ("B10", |service, op| {
            if matches!(op, Op::Write(write) if write.value.is_empty()) {
                service.reference().hook(Hook::Reset).unwrap();
            }
        }),
        ("B04", |service, op| {
            if let Op::Cas { res, value, .. } = op {
                put(service, res, 9, value);
            }
        }),
    ];
    for (case, then) in odd {
        let subject = ByWays { resource: reference(), then, said: |_, _| Answer::Unsupported };
        let result = run_on(&subject, &[case], Level::L1).remove(0);
        assert_eq!(result.status, Status::Fail, "{case}: {}", result.reason);
        assert!(result.reason.contains("must be refused as stale, and was accepted"), "{case}: {}", result.reason);
    }
}
