#!/bin/sh
# A nightly job that must not run twice at once, and must not write after somebody else has begun:
#
#   fencepost run --lock fencepost://127.0.0.1:3362 --resource jobs/nightly --wait 0s -- examples/nightly/nightly.sh
#
# `fencepost run` puts the token into the environment, where `fencepost kv` finds it. If this machine is suspended in the
# middle and another one takes over, what this script writes afterwards is refused, and the script is ended.
set -eu

echo "nightly: token $FENCEPOST_TOKEN for $FENCEPOST_RESOURCE"
fencepost kv put "$FENCEPOST_RESOURCE" "running since $(date -u +%H:%M)" > /dev/null

# … the work …

fencepost kv put "$FENCEPOST_RESOURCE" "done at $(date -u +%H:%M)" > /dev/null
echo "nightly: done"
