#!/bin/bash
# Holds a job back until its node is locked for it: asks the hook gateway, and blocks.
#
# What must stay true: the job's first line never runs on a node that is not locked. Slurm starts a
# multi-node job although one prolog failed, so before this script fails the job is taken out of RUNNING.
# And a prolog that fails after its job was cancelled brings the job back: so a job that no longer runs
# ends it well. Nothing that a user writes is read here, but for the job's extra, which makes a lock stricter:
# of a job Slurm is asked for fields that hold no text of users, and what cannot be read is a job that runs.
#
# Ends with 0 where the job may start, and where it was taken out of RUNNING or is over; SUNK_HOOKS_NOT_LOCKED
# is another status for these last two, for who has more to do once the node is locked.
#
# With an argument it locks nothing: a script that finds its node unfit says why, and has the node drained and the
# job taken out of RUNNING. It ends with 0 if the job is.
#
# Settings: /etc/sunk/hooks.env (SUNK_HOOKS_DEADLINE_S, and those of gateway.sh, which stands beside it).
# slurm.conf's PrologEpilogTimeout is 30 s more than SUNK_HOOKS_DEADLINE_S: this script is done before.

set -u
trap '' PIPE # A prolog whose slurmd has died goes on: nobody reads what it says.
# slurmd gives a prolog next to no environment.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
if [[ -z ${SLURM_CONF:-} && -r /run/slurm/conf/slurm.conf ]]; then
    export SLURM_CONF=/run/slurm/conf/slurm.conf
fi
readonly settings=${SUNK_HOOKS_ENV:-/etc/sunk/hooks.env}
broken=''
# shellcheck disable=SC1090,SC1091
[[ -r $settings ]] && source "$settings"
# shellcheck source=gateway.sh
[[ -r ${settings%/*}/gateway.sh ]] && source "${settings%/*}/gateway.sh"
for file in "${settings%/*}/gateway.sh" "$settings"; do
    [[ -r $file ]] || broken="$file cannot be read"
done

readonly job=$SLURM_JOB_ID node=$SLURMD_NODENAME not_locked=${SUNK_HOOKS_NOT_LOCKED:-0}
deadline=${SUNK_HOOKS_DEADLINE_S:-50}
give_up=$((deadline + 15)) # 15 s are left for what a refusal asks for.
end=$((give_up + 12))      # Slurm's client may take two seconds more to end.
others='' waited=0
said='' is_batch_job=0 # What was told last to whoever waits for the job at a terminal.
readonly fields='JobID:|,ArrayJobID:|,ArrayTaskID:|,State:|,BatchFlag:|,Requeue:|,NodeList:|'

say() {
    echo "sunk prolog: job $job: $*" >&2
}

# Slurm kills a prolog without a word, and the job of one that was killed may start.
fit_into_slurms_limit() {
    local limit
    limit=$(slurms_limit Prolog)
    if [[ -n $limit ]] && ((limit < deadline + 30)); then
        say "slurm.conf ends prologs after $limit s: set PrologEpilogTimeout=$((deadline + 30)) for SUNK_HOOKS_DEADLINE_S=$deadline"
        deadline=$((limit > 31 ? limit - 30 : 1))
        give_up=$(((deadline + limit) / 2))
        end=$((limit > 6 ? limit - 3 : limit / 2))
    fi
}

# Whoever could set a job's extra to our mark gets no more than a stricter lock.
level() {
    if [[ ${SLURM_JOB_EXTRA:-} == '{"sunk":{'* ]]; then
        echo strict
    else
        echo normal
    fi
}

# Prints a line for each job that slurmctld has by our id, which may be that of a whole array or heterogeneous
# job, or INVALID if it has none; fails where it did not say.
records() {
    local shown
    # No field here holds what a user wrote. A completing or completed job is told only if asked for.
    if shown=$(slurm squeue --noheader --all --states=all "--jobs=$job" --Format="$fields" 2>&1); then
        echo "$shown"
    elif [[ $shown == *'Invalid job id'* ]]; then
        echo INVALID
    else
        return 1
    fi
}

# Whether a job in the state $1 has no need of a lock. Any other word, and none, is that of a job that runs.
is_over() {
    case $1 in
        PENDING | COMPLETING | COMPLETED | CANCELLED | FAILED | TIMEOUT | NODE_FAIL | PREEMPTED | BOOT_FAIL) ;;
        DEADLINE | OUT_OF_MEMORY | REVOKED | REQUEUED | REQUEUE_HOLD | REQUEUE_FED | SPECIAL_EXIT) ;;
        LAUNCH_FAILED | RECONFIG_FAIL | GONE) ;;
        *) return 1 ;;
    esac
}

# Slurm starts a heterogeneous job's script when the nodes of its first component are ready: the node that
# the script starts on has to wait for the nodes of the other components too. Sets others, as JSON; fails
# where slurmctld did not say.
find_others() {
    local shown id array task state batch may_requeue nodes host='' found=''
    others=''
    [[ ${SLURM_HET_JOB_ID:-} == "$job" ]] || return 0
    shown=$(records) || return
    while IFS='|' read -r id array task state batch may_requeue nodes; do
        if [[ $id == "$job" ]]; then
            # srun and salloc wait for all components by themselves.
            [[ $batch != 0 ]] || return 0
            host=$(slurm squeue --noheader --all --states=all "--jobs=$job" --Format='JobID:|,BatchHost:|' 2>/dev/null) ||
                return
            [[ $'\n'$host == *$'\n'"$job|$node|"* ]] || return 0
            continue
        fi
        [[ $state != PENDING ]] || return 1 # Slurm starts them one after the other.
        ! is_over "$state" || continue
        [[ $id =~ ^[0-9]+$ && -n $nodes ]] || return 1
        found+="${found:+,}{\"job\":$id,\"nodes\":$(quoted "${nodes%|}")}"
    done <<<"$shown"
    [[ -n $host ]] || return 1
    others=$found
}

# Calls the gateway; fails where another call would fail too. A gateway that dies with its machine hangs up
# on nobody: each call has an end, so that another one is tried. Who has waited for long asks less often.
call() {
    local left=$((deadline - SECONDS)) patience=$((give_up - SECONDS)) held=$((waited < 15 ? 15 : 60)) body
    ((left > 1)) || left=1
    ((left > held + 10)) || held=$left
    ((patience < held + 5)) || patience=$((held + 5))
    body="{\"job\":$job,\"level\":$(quoted "$(level)"),\"deadline_s\":$left,\"hold_s\":$held,\"waited_s\":$waited"
    # A text of the gateway, which has no quotes in it; of a batch job's locks there is none to tell.
    ((is_batch_job)) || body+=",\"said\":$(quoted "$said")"
    if [[ -n $others ]]; then
        body+=",\"started\":${SLURM_JOB_START_TIME:-0},\"components\":[$others]"
    fi
    post "/v1/nodes/$node/prehook" "$body}" "$((patience > 1 ? patience : 1))" || return
    if [[ $status == 202 ]]; then
        waited=$SECONDS
        tell_waiting
    fi
}

# Tells who waits for the job at a terminal what it waits for, if the gateway has something to tell: without
# this srun and salloc say only that a prolog hangs. Nobody waits for a batch job.
tell_waiting() {
    local text step_end=$((SECONDS + 4))
    [[ $answer =~ \"say\":\"([^\"]*)\" ]] || return 0
    text=${BASH_REMATCH[1]}
    look
    if [[ $is_batch != 0 ]]; then
        [[ -z $state ]] || is_batch_job=1 # Where Slurm does not say, the next change is told.
    elif [[ -n $name ]] && ! is_over "$state"; then
        slurm scontrol notify "$name" "job $name waits: $text" || say 'could not notify the user who waits'
    fi
    said=$text
}

# Slurm's client, never for longer than this script has, or the step that it is in.
slurm() {
    local left=$((${step_end:-$end} - SECONDS))
    timeout --kill-after=1 "$((left < 5 ? (left > 1 ? left : 1) : 5))" "$@"
}

# Sets what Slurm says of our job: state (GONE if it knows no such job; empty if it did not say), name (how
# Slurm calls this job and no other), is_batch and may_requeue.
look() {
    local shown id array task said batch requeue nodes
    state='' name='' is_batch=1 may_requeue=''
    shown=$(records) || return 0
    if [[ $shown == INVALID ]]; then
        state=GONE
        return
    fi
    while IFS='|' read -r id array task said batch requeue nodes; do
        [[ $id == "$job" ]] || continue
        state=$said is_batch=$batch may_requeue=$requeue
        # The last task of an array has the array's id, by which Slurm would take all tasks. And it requeues
        # and cancels a heterogeneous job by its first component only.
        if [[ $array =~ ^[0-9]+$ && $task =~ ^[0-9]+$ ]]; then
            name=${array}_$task
        elif [[ $task == N/A ]]; then
            name=${SLURM_HET_JOB_ID:-$job}
        fi
    done <<<"$shown"
}

is_running() {
    look
    ! is_over "$state"
}

# Drains our node; a drain that is there already stays as it is, whoever set it. A slurmctld that takes its
# time must leave enough of ours to take the job out of RUNNING, which matters more.
drain_node() {
    local shown step_end=$((SECONDS + 8))
    if ((step_end > end - 6)); then
        step_end=$((end - 6))
    fi
    for _ in 1 2 3; do
        shown=$(slurm scontrol --oneliner show node "$node" 2>/dev/null)
        # The first: comments, Extra and reasons, which people write, come after it.
        if [[ $shown =~ [[:space:]]State=([^[:space:]]*) ]]; then
            [[ ${BASH_REMATCH[1]} == *DRAIN* ]] && return 0
            slurm scontrol update "nodename=$node" state=drain "reason=$1" && return 0
        fi
        ((SECONDS < step_end)) || break
        sleep 0.3
    done
    say "could not drain $node"
    return 1
}

# Takes the job out of RUNNING and sees that it is. $1: requeue or requeuehold; $2: the reason.
stop_job() {
    local is_told=''
    while ((SECONDS < end)); do
        is_running || return 0
        if [[ -z $name ]]; then
            : # Slurm did not say which job this is: nobody else's is stopped.
        elif [[ $is_batch == 0 ]]; then
            # What somebody waits for at a terminal cannot be requeued.
            if [[ -z $is_told ]]; then
                slurm scontrol notify "$name" "job $name is cancelled, please start it again: $2"
                slurm scontrol update "jobid=$name" "admincomment=sunk: cancelled: $2"
                is_told=1
            fi
            slurm scancel "$name"
        elif [[ $may_requeue == 0 ]]; then
            slurm scancel "$name"
        elif [[ $may_requeue == 1 ]]; then
            slurm scontrol "$1" "$name"
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
    stop_job "$2" "$3" || return
    # So that it is found, and known to be ours: the syncer releases it when failed locks may drain nodes again.
    [[ $2 != requeuehold || $is_batch == 0 || $may_requeue == 0 || -z $name ]] ||
        slurm scontrol update "jobid=$name" "admincomment=sunk: held: $3" ||
        say 'held, but the mark was not written'
}

# Does what the answer at the deadline asks for.
be_refused() {
    local reason='k8s: prolog pre-hook failed (sunk:verify-undrain)' drain=false how=requeue
    [[ $answer =~ \"reason\":\"([^\"]*)\" ]] && reason=${BASH_REMATCH[1]}
    [[ $answer == *'"drain":true'* ]] && drain=true
    [[ $answer == *'"hold":true'* ]] && how=requeuehold
    say "refused: $reason"
    refuse "$drain" "$how" "$reason"
}

if (($#)); then
    drain_node "$1"
    stop_job requeue "$1"
    exit
fi
[[ -n $broken ]] || fit_into_slurms_limit
while [[ -z $broken ]] && ((SECONDS < give_up)); do
    if ! find_others; then
        trouble='slurmctld does not list the components of the job'
        is_running || exit "$not_locked"
    elif call; then
        case $status in
            200)
                # Nothing but this word is a lock: the gateway says 200 of a job that is over, too.
                [[ $answer != *'"locked":true'* ]] || exit 0
                is_running || exit "$not_locked"
                waited=$SECONDS trouble='for the hook gateway the job has ended, but in Slurm it runs'
                ;;
            409)
                be_refused || exit
                exit "$not_locked"
                ;;
            408 | 429) ;; # We were too slow, or too many.
            4??)
                say "HTTP $status: $answer"
                trouble="the hook gateway answered HTTP $status"
                break
                ;;
        esac
        [[ -z $others ]] || is_running || exit "$not_locked"
    else
        break
    fi
    # No answer, or none yet: any replica may give the next one. Spread, for a job has many nodes.
    sleep "0.$((RANDOM % 6 + 3))"
done

trouble=${broken:-${trouble:-no answer from the hook gateway}}
say "$trouble"
if is_running; then
    drain_node "k8s: prolog pre-hook failed: $trouble (sunk:verify-undrain)"
    stop_job requeue "$trouble"
    exit 1
fi
exit "$not_locked"
