#!/bin/sh
# Tells every fact of one Slurm cluster, those of while it was away too. Needs the nats CLI.
#
# export NATS_URL=nats://sunk-nats-teams.sunk:4222 NATS_USER=subscriber-billing NATS_PASSWORD=...
# subscriber.sh prod
set -eu
stream=SUNK_EV_$1

as_user() {
    nats --inbox-prefix "_INBOX.$NATS_USER" "$@"
}

# The name of the user is the only one that its consumer may have.
until as_user consumer info "$stream" "$NATS_USER" > /dev/null 2>&1; do
    as_user consumer add "$stream" "$NATS_USER" --pull --ack explicit --deliver all --defaults > /dev/null || sleep 5
done
while true; do
    # It is acknowledged after it was written. Where nothing comes for 30 s, the client ends with an error.
    as_user consumer next "$stream" "$NATS_USER" --raw --timeout 30s 2> /dev/null || sleep 1
done
