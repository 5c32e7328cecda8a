#!/bin/sh
# Tells every fact of one Slurm cluster, those of while it was away too. Needs the nats CLI.
#
# export NATS_URL=nats://sunk-nats-teams.sunk:4222 NATS_USER=subscriber-billing NATS_PASSWORD=...
# subscriber.sh prod
set -eu
stream=SUNK_EV_$1

nats_as_user() {
    nats --inbox-prefix "_INBOX.$NATS_USER" "$@"
}

# The name of the user is the only one that its consumer may have.
if ! nats_as_user consumer info "$stream" "$NATS_USER" > /dev/null 2>&1; then
    nats_as_user consumer add "$stream" "$NATS_USER" --pull --ack explicit --deliver all --defaults > /dev/null
fi
while true; do
    # Acknowledged when it was written. Where nothing comes for a while, NATS' client ends with an error.
    if fact=$(nats_as_user consumer next "$stream" "$NATS_USER" --raw --timeout 30s 2> /dev/null); then
        printf '%s\n' "$fact"
    else
        sleep 1
    fi
done
