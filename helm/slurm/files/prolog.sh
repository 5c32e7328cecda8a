#!/bin/bash
# Holds a job back until its node is locked for it: asks the hook gateway, and blocks.
#
# What must stay true: the job's first line never runs on a node that is not locked. Slurm starts a
# multi-node job although one prolog failed, so before this script fails the job is taken out of RUNNING.
# And a prolog that fails after its job was cancelled brings the job back: so a job that no longer runs
# ends it well.
#
# Settings: /etc/sunk/hooks.env (SUNK_HOOKS_URL, SUNK_HOOKS_TOKEN_FILE, SUNK_HOOKS_DEADLINE_S).
# slurm.conf's PrologEpilogTimeout is 30 s more than SUNK_HOOKS_DEADLINE_S: this script is done before.

set -u
# slurmd gives a prolog next to no environment.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
if [[ -z ${SLURM_CONF:-} && -r /run/slurm/conf/slurm.conf ]]; then
    export SLURM_CONF=/run/slurm/conf/slurm.conf
fi
# shellcheck disable=SC1090,SC1091
source "${SUNK_HOOKS_ENV:-/etc/sunk/hooks.env}"

readonly job=$SLURM_JOB_ID node=$SLURMD_NODENAME
readonly deadline=${SUNK_HOOKS_DEADLINE_S:-50}
readonly give_up=$((deadline + 15)) # 15 s are left for what a refusal asks for.
readonly own_reason='k8s: prolog pre-hook failed: no answer from the hook gateway (sunk:verify-undrain)'
answer='' status=''

say() {
    echo "sunk prolog: job $job: $*" >&2
}

# Whoever could set a job's extra to our mark gets no more than a stricter lock.
level() {
    if [[ ${SLURM_JOB_EXTRA:-} == '{"sunk":{'* ]]; then
        echo strict
    else
        echo normal
    fi
}

# Calls the gateway; sets status (000 without an answer) and answer.
call() {
    local left=$((deadline - SECONDS)) patience=$((give_up - SECONDS)) body
    body="{\"job\":$job,\"level\":\"$(level)\",\"deadline_s\":$((left > 1 ? left : 1))}"
    # The token goes through standard input: arguments can be read by everybody on the node.
    answer=$(printf 'Authorization: Bearer %s\n' "$(<"${SUNK_HOOKS_TOKEN_FILE:-/var/run/secrets/sunk/token}")" |
        curl --silent --header @- --header 'Content-Type: application/json' --data "$body" \
            --connect-timeout 5 --max-time "$((patience > 1 ? patience : 1))" --write-out '\n%{http_code}' \
            "$SUNK_HOOKS_URL/v1/nodes/$node/prehook")
    status=${answer##*$'\n'}
    answer=${answer%$'\n'*}
}

# Slurm's client, never for longer than this script has.
slurm() {
    timeout --kill-after=1 5 "$@"
}

# Prints RUNNING, PENDING...; GONE if slurmctld knows no such job; nothing if it did not say.
job_state() {
    local shown
    if shown=$(slurm scontrol --oneliner show job "$job" 2>&1); then
        [[ $shown =~ JobState=([A-Z_]+) ]] && echo "${BASH_REMATCH[1]}"
    elif [[ $shown == *'Invalid job id'* ]]; then
        echo GONE
    fi
}

is_running() {
    case $(job_state) in
        RUNNING | CONFIGURING | SUSPENDED | '') return 0 ;; # Unknown is not "over".
        *) return 1 ;;
    esac
}

# Drains our node; a drain that is there already stays as it is, whoever set it.
drain_node() {
    local shown
    for _ in 1 2 3; do
        shown=$(slurm scontrol --oneliner show node "$node" 2>/dev/null)
        [[ $shown =~ State=[^[:space:]]*DRAIN ]] && return 0
        if [[ $shown == *State=* ]]; then
            slurm scontrol update "nodename=$node" state=drain "reason=$1" && return 0
        fi
        sleep 0.3
    done
    say "could not drain $node"
    return 1
}

# Takes the job out of RUNNING and sees that it is. $1: requeue or requeuehold.
stop_job() {
    local shown end=$((SECONDS + 12))
    while ((SECONDS < end)); do
        is_running || return 0
        shown=$(slurm scontrol --oneliner show job "$job" 2>/dev/null)
        if [[ $shown =~ Requeue=0 ]]; then
            slurm scancel "$job"
        elif [[ $shown == *Requeue=1* ]]; then
            slurm scontrol "$1" "$job"
        fi
        is_running || return 0
        sleep 0.3
    done
    say "still running after $1"
    return 1
}

# $1: whether to drain, $2: requeue or requeuehold, $3: the reason. The order matters: slurmctld writes
# "Prolog error" only on a node that is not drained yet, and a requeued job must not come back to it.
refuse() {
    is_running || return 0
    if [[ $1 == true ]]; then
        drain_node "$3"
    fi
    stop_job "$2"
}

while [[ -n ${SUNK_HOOKS_URL:-} ]] && ((SECONDS < give_up)); do
    call
    case $status in
        200)
            exit 0
            ;;
        409)
            reason=$own_reason drain=false how=requeue
            [[ $answer =~ \"reason\":\"([^\"]*)\" ]] && reason=${BASH_REMATCH[1]}
            [[ $answer == *'"drain":true'* ]] && drain=true
            [[ $answer == *'"hold":true'* ]] && how=requeuehold
            say "refused: $reason"
            refuse "$drain" "$how" "$reason"
            exit
            ;;
        4??)
            say "HTTP $status: $answer"
            break
            ;;
    esac
    # No answer, or none yet: any replica may give the next one. Spread, for a job has many nodes.
    sleep "0.$((RANDOM % 6 + 3))"
done

say 'no answer'
if is_running; then
    refuse true requeue "$own_reason"
    exit 1
fi
exit 0
