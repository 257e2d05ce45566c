//! R10: the clock of the process is set wrong, and corrected again.

use super::crashes::write_in_every_way;
use super::{Ended, Trial};
use crate::op::{Op, Verb};
use crate::subject::Shift;

/// Each round creates resources under the current clock, then sets the clock and checks all resources created so far:
/// right after the clock is set, and again after a restart.
pub(super) fn wrong_clock(t: &Trial<'_>) -> Result<(), Ended> {
    let mut clock = t.clock();
    let mut fences: Vec<(String, u64)> = Vec::new();
    for shift in [Shift::AHEAD, Shift::BEHIND, Shift::NONE] {
        fences.extend(write_in_every_way(t)?.into_iter().map(|res| (res, 9)));
        clock.set(shift)?;
        fences.iter_mut().try_for_each(|(res, fence)| look(t, res, fence))?;
        t.restart()?;
        fences.iter_mut().try_for_each(|(res, fence)| look(t, res, fence))?;
    }
    clock.put_right();
    Ok(())
}

/// Checks that a resource has its value and its fence, and raises the fence by one.
fn look(t: &Trial<'_>, res: &str, fence: &mut u64) -> Result<(), Ended> {
    const SOMEBODY: u32 = 20;
    t.peek(SOMEBODY, res)?;
    if t.has(Verb::CheckedRead) {
        t.call(SOMEBODY, Op::checked_read(res, *fence - 1))?;
    }
    t.call(SOMEBODY, t.write_op(SOMEBODY, res, *fence - 1))?;
    *fence += 1;
    // No other client is active, so there is no reason for an error. The model would accept any error.
    t.accepted(SOMEBODY, t.write_op(SOMEBODY, res, *fence))?;
    t.peek(SOMEBODY, res)?;
    Ok(())
}
