#!/bin/bash
# Tells the hook gateway that a job has left its node, and blocks while a placeholder's Pod is there:
# the node stays COMPLETING, and so goes to nobody else.
#
# What must stay true: it always exits 0. A failing epilog drains its node, and whatever it could not
# tell is found by those who follow the state of jobs.
#
# Settings: as prolog.sh.

trap 'exit 0' EXIT
# slurmd gives an epilog next to no environment.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
# shellcheck disable=SC1090,SC1091
source "${SUNK_HOOKS_ENV:-/etc/sunk/hooks.env}" || exit 0

readonly job=$SLURM_JOB_ID node=$SLURMD_NODENAME
# An ordinary job's node is not held up for a gateway that does not answer; a placeholder's is.
bound=10
if [[ ${SLURM_JOB_EXTRA:-} == '{"sunk":{'* ]]; then
    bound=$((${SUNK_HOOKS_DEADLINE_S:-50} + 15))
fi

while ((SECONDS < bound)); do
    # The token goes through standard input: arguments can be read by everybody on the node.
    status=$(printf 'Authorization: Bearer %s\n' "$(<"${SUNK_HOOKS_TOKEN_FILE:-/var/run/secrets/sunk/token}")" |
        curl --silent --header @- --header 'Content-Type: application/json' --data "{\"job\":$job}" \
            --connect-timeout 5 --max-time 15 --output /dev/null --write-out '%{http_code}' \
            "$SUNK_HOOKS_URL/v1/nodes/$node/release")
    case $status in
        200)
            exit 0
            ;;
        202)
            bound=$((${SUNK_HOOKS_DEADLINE_S:-50} + 15)) # The Pod is still there, whatever the job's extra says.
            sleep 0.1
            ;;
        4??)
            echo "sunk epilog: job $job: HTTP $status" >&2
            exit 0
            ;;
        *)
            sleep "0.$((RANDOM % 6 + 3))"
            ;;
    esac
done
echo "sunk epilog: job $job: not released in $bound s" >&2
