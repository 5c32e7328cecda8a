#!/bin/sh
# Prints every fact of one Slurm cluster, also those of the time in which it did not run. Needs the nats CLI.
#
# export NATS_URL=nats://sunk-nats-teams.sunk:4222 NATS_USER=subscriber-billing NATS_PASSWORD=...
# With TLS also: NATS_CA=ca.crt
# subscriber.sh prod
set -eu
stream=SUNK_EV_$1

as_user() {
    nats --inbox-prefix "_INBOX.$NATS_USER" "$@"
}

# A team's only consumer has the name of its user.
until as_user consumer info "$stream" "$NATS_USER" > /dev/null 2>&1; do
    as_user consumer add "$stream" "$NATS_USER" --pull --ack explicit --deliver all --defaults > /dev/null || sleep 5
done
while true; do
    # A fact is acknowledged after it is printed. If none comes for 30 s, the client ends with an error.
    as_user consumer next "$stream" "$NATS_USER" --raw --timeout 30s 2> /dev/null || sleep 1
done
