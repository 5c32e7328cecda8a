#!/bin/bash
# Says what in slurm.conf, or in the settings of the hooks, would let a job start on a node that is not
# locked, or drain nodes for nothing. One line each, with what to set; ends well if there is none.
#
# Meant for the start of slurmd and for people, not for each job: it asks slurmctld.
#
# check.sh [wait] [conf]   wait: until slurmctld answers, two minutes at most; conf: slurm.conf only.
#
# Settings: as prolog.sh.

set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
readonly settings=${SUNK_HOOKS_ENV:-/etc/sunk/hooks.env}
found=0

say() {
    echo "sunk check: $*"
    found=1
}

# The value of the key $1 in config, without its unit; nothing where Slurm has none.
value_of() {
    [[ $'\n'$config =~ $'\n'"$1"(\[0\])?[[:blank:]]*=[[:blank:]]*([^[:space:]]+) ]] || return 0
    [[ ${BASH_REMATCH[2]} == '(null)' ]] || echo "${BASH_REMATCH[2]}"
}

# Only Alloc and DeferBatch together make a batch script wait for the prologs of all its nodes.
check_flags() {
    local flags word
    flags=,$(value_of PrologFlags),
    if [[ $flags != *,Alloc,* || $flags != *,DeferBatch,* ]]; then
        say "PrologFlags=${flags//,/ }: a batch script may start before all nodes of its job are locked: set PrologFlags=Alloc,DeferBatch"
    fi
    for word in NoHold Serial ForceRequeueOnFail; do
        [[ $flags != *,"$word",* ]] || case $word in
            NoHold) say 'PrologFlags has NoHold: srun does not wait for all nodes of its job: remove it' ;;
            Serial) say 'PrologFlags has Serial: a prolog that waits blocks the epilogs of its node: remove it' ;;
            *) say 'PrologFlags has ForceRequeueOnFail: Slurm requeues and holds refused placeholders: remove it' ;;
        esac
    done
}

# A prolog that Slurm ends had no time to take its job out of RUNNING, and an epilog drains its node.
check_timeouts() {
    local kind key limit which='a prolog' deadline=${SUNK_HOOKS_DEADLINE_S:-50}
    for kind in Prolog Epilog; do
        for key in "${kind}Timeout" PrologEpilogTimeout; do
            limit=$(value_of "$key")
            [[ $limit =~ ^[0-9]+$ ]] || continue
            if ((limit > 0 && limit < deadline + 30)); then
                say "$key=$limit: Slurm ends $which before its deadline: set $key=$((deadline + 30)) for SUNK_HOOKS_DEADLINE_S=$deadline"
            fi
            break
        done
        which='an epilog'
    done
    # A node registers now and then: slurmctld requeues a batch job that slurmd does not have by then.
    limit=$(value_of BatchStartTimeout)
    if [[ $limit =~ ^[0-9]+$ ]] && ((limit < deadline + 60)); then
        say "BatchStartTimeout=$limit: a batch job may be requeued as NODE_FAIL while its prolog waits for the lock: set BatchStartTimeout=$((deadline + 60)) for SUNK_HOOKS_DEADLINE_S=$deadline"
    fi
    check_credentials "$((deadline + 60))"
}

# What starts a job is signed when it is allocated: where that does not outlive the prologs, slurmd refuses it,
# and the job fails although its node is locked. Not said in AuthInfo: auth/slurm's 60 s, MUNGE's 300, and 120.
check_credentials() {
    local info ttl=300 expire=120
    info=$(value_of AuthInfo)
    [[ $(value_of AuthType) != auth/slurm ]] || ttl=60
    [[ ! ,$info, =~ ,ttl=([0-9]+), ]] || ttl=${BASH_REMATCH[1]}
    [[ ! ,$info, =~ ,cred_expire=([0-9]+), ]] || expire=${BASH_REMATCH[1]}
    if ((10#$ttl < $1 || 10#$expire < $1)); then
        say "AuthInfo=$info: a job that waits long for its lock fails, because the credential that starts it expires: set AuthInfo=ttl=$1,cred_expire=$1 for SUNK_HOOKS_DEADLINE_S=${SUNK_HOOKS_DEADLINE_S:-50}"
    fi
}

check_conf() {
    local kind
    for kind in Prolog Epilog; do
        [[ -n $(value_of "$kind") ]] || say "$kind is not set, so jobs do not lock their nodes, or do not release them: set $kind to the chart's script"
    done
    check_flags
    check_timeouts
}

check_settings() {
    local token=${SUNK_HOOKS_TOKEN_FILE:-/var/run/secrets/sunk/token}
    case ${SUNK_HOOKS_URL:-} in
        http://*) ;;
        https://*)
            type -P curl >/dev/null || say "SUNK_HOOKS_URL=$SUNK_HOOKS_URL: needs curl: add it to the image, or use http"
            [[ -z ${SUNK_HOOKS_CA_FILE:-} || -r $SUNK_HOOKS_CA_FILE || -n ${SUNK_HOOKS_URL_WITHOUT_TLS:-} ]] ||
                say "SUNK_HOOKS_CA_FILE=$SUNK_HOOKS_CA_FILE: cannot be read"
            ;;
        *) say "SUNK_HOOKS_URL=${SUNK_HOOKS_URL:-}: is not an address of a hook gateway: set http://HOST:PORT" ;;
    esac
    [[ -s $token ]] || say "SUNK_HOOKS_TOKEN_FILE=$token: cannot be read, or is empty"
}

if [[ -r $settings ]]; then
    # shellcheck disable=SC1090,SC1091
    source "$settings"
else
    say "$settings: cannot be read"
fi
[[ -r ${settings%/*}/gateway.sh ]] || say "${settings%/*}/gateway.sh: cannot be read"
bound=0
if [[ " $* " == *' wait '* ]]; then
    bound=120
fi
while :; do
    # A slurmd without a slurm.conf of its own writes the one that it was sent.
    if [[ -z ${SLURM_CONF:-} && -r /run/slurm/conf/slurm.conf ]]; then
        export SLURM_CONF=/run/slurm/conf/slurm.conf
    fi
    config=$(timeout --kill-after=1 5 scontrol show config 2>/dev/null) && break
    if ((SECONDS >= bound)); then
        say 'slurmctld does not answer: slurm.conf is not checked'
        config=''
        break
    fi
    sleep 1
done
[[ -z $config ]] || check_conf
[[ " $* " == *' conf '* ]] || check_settings
exit "$found"
