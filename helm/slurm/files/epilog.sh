#!/bin/bash
# Tells the hook gateway that a job has left its node, and blocks while a placeholder's Pod is there:
# the node stays COMPLETING, and so goes to nobody else.
#
# What must stay true: it always exits 0. A failing epilog drains its node, and whatever it could not
# tell is found by those who follow the state of jobs.
#
# Settings: as prolog.sh.

trap 'exit 0' EXIT
trap '' PIPE # An epilog whose slurmd has died goes on: nobody reads what it says.
# slurmd gives an epilog next to no environment.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
if [[ -z ${SLURM_CONF:-} && -r /run/slurm/conf/slurm.conf ]]; then
    export SLURM_CONF=/run/slurm/conf/slurm.conf
fi
readonly settings=${SUNK_HOOKS_ENV:-/etc/sunk/hooks.env}
# shellcheck disable=SC1090,SC1091
source "$settings" || exit 0
# shellcheck source=gateway.sh
source "${settings%/*}/gateway.sh" || exit 0

readonly job=$SLURM_JOB_ID node=$SLURMD_NODENAME

say() {
    echo "sunk epilog: job $job: $*" >&2
}

# An epilog that Slurm ends is one that failed.
longest=$((${SUNK_HOOKS_DEADLINE_S:-50} + 15))
limit=$(slurms_limit Epilog)
if [[ -n $limit ]] && ((limit < longest + 15)); then
    say "slurm.conf ends epilogs after $limit s: set PrologEpilogTimeout=$((longest + 15))"
    longest=$((limit > 20 ? limit - 15 : limit / 4))
fi
# No node is held up for a gateway that does not answer: which job is a placeholder only the gateway knows, for
# all that stands here of a job its user wrote. The lock keeps others waiting for a Pod that is left.
bound=$((longest < 10 ? longest : 10))

while ((SECONDS < bound)); do
    left=$((longest - SECONDS))
    post "/v1/nodes/$node/release" "{\"job\":$job}" "$((left < 15 ? (left > 1 ? left : 1) : 15))" || break
    case $status in
        200)
            exit 0
            ;;
        202)
            bound=$longest # The Pod is still there.
            sleep 0.1
            ;;
        408 | 429)
            sleep 1
            ;;
        4??)
            say "HTTP $status"
            exit 0
            ;;
        *)
            sleep "0.$((RANDOM % 6 + 3))"
            ;;
    esac
done
say "${trouble:-not released in $bound s}"
