//! Commands that change nothing, answered as of one instant of committed records. They are judged like all others, and neither
//! wait for the commits of others nor delay them.

use std::{iter, slice};

use fencepost_core::{Access, Mode, Step, Timestamp, Verdict, decide};

use crate::command::{Action, Claim, Command, Judged, Write, answered};
use crate::engine::Wanted;
use crate::failure::{Failure, Rejected};
use crate::outcome::{ClaimOutcome, Claimed, TransactOutcome};
use crate::overlay::{Overlay, Plan, Proof};
use crate::reads::state_of;
use crate::record::{MAX_HEAD_BYTES, RecordKey, Value};
use crate::reply::Reply;
use crate::sequencer::current_meta;
use crate::store::{ClaimKeys, Store, WrongResource};

impl Store {
    /// Raises the fence and reads, in one durable step.
    pub async fn claim(&self, claim: ClaimKeys) -> Result<ClaimOutcome, Failure> {
        let ClaimKeys { resource, presented, keys, max_bytes } = claim;
        let guarded = self.resource(&resource)?;
        let guards = self.guards();
        for key in &keys {
            let found = guards.of_key(key)?.resource;
            if found != resource {
                return Err(WrongResource::Belongs { name: key.to_string(), resource: found }.into());
            }
        }
        let (judged, claim) = (Judged { guarded, presented, access: Access::Claim }, Claim { keys, max_bytes });
        if let Some(refusal) = self.entry.known_refusal(slice::from_ref(&judged), None)? {
            return Ok(ClaimOutcome::Refused(Box::new(refusal)));
        }
        if let Some(claimed) = self.claimed_before(&judged, &claim) {
            return Ok(ClaimOutcome::Claimed(Box::new(claimed)));
        }
        self.entry.submit(vec![judged], None, |reply| Action::Claim(claim, reply)).await
    }

    /// The answer to a claim under the token that is the fence already, which raises nothing. `None`: it may change something,
    /// or must wait for something, so it is a command for the sequencer. It never overtakes a command that was queued before.
    fn claimed_before(&self, judged: &Judged, claim: &Claim) -> Option<Claimed> {
        let Judged { guarded, presented, access } = judged;
        // The cache only says that this is likely.
        if guarded.policy.mode == Mode::Observe || !self.entry.cache.holds(judged) || !self.entry.is_idle() {
            return None;
        }
        let fence = Wanted::bytes(RecordKey::fence(&guarded.resource));
        let want = answered(claim.max_bytes);
        let values = claim.keys.iter().map(|key| Wanted { key: RecordKey::value(key), want });
        let spare = claim.max_bytes.saturating_add(claim.keys.len() * MAX_HEAD_BYTES);
        let keys: Vec<Wanted> = iter::once(fence).chain(values).collect();
        let (base, records) = self.at_hand_under_base(&keys, spare)?;
        let mut records = records.into_iter();
        let state = state_of(base, records.next().flatten().as_ref()).ok()?;
        if decide(&state, presented.as_ref(), *access, &guarded.policy) != Verdict::Admit(Step::Keep) {
            return None;
        }
        let (mut values, mut bytes) = (Vec::with_capacity(claim.keys.len()), 0);
        for (key, record) in claim.keys.iter().zip(records) {
            let value = match record {
                Some(record) if !record.is_whole() => return None,
                Some(record) => Some((record.version, Value::decode(&record.bytes).ok()?)),
                None => None,
            };
            bytes += value.as_ref().map_or(0, |(_, value)| value.body.len());
            values.push((key.clone(), value));
        }
        (bytes <= claim.max_bytes).then_some(Claimed { state, values, observed: None })
    }

    /// Answers a transaction that changes nothing from one snapshot. It presents no token, so there is nothing to judge.
    pub(crate) async fn view(&self, write: Write) -> Result<TransactOutcome, Failure> {
        let unavailable = |why: String| Failure::from(Rejected::Unavailable(why));
        let _turn = self.views.acquire().await.map_err(|_| unavailable("the store is closed".into()))?;
        let (reply, mut answer) = Reply::new();
        let mut command =
            Command { judged: Vec::new(), once: None, action: Action::Write(write, reply), _under_way: None };
        let plan = Plan::of(slice::from_ref(&command), 0);
        let loaded = self.engine.load_wanted(&plan.wanted, plan.spare).await.map_err(|error| unavailable(error.0))?;
        let meta = current_meta(&loaded, &self.mapping_hash())?;
        let overlay = Overlay::new(&plan, &loaded, meta, Timestamp::now(), Proof::of_load(self.engine.as_ref()));
        overlay.map_err(|error| unavailable(error.to_string()))?.judge(&mut command);
        command.settle(None, &self.locks);
        answer.try_recv().unwrap_or_else(|_| Err(unavailable("the transaction was not answered".into())))
    }
}
