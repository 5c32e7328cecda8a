#!/bin/bash
# Slurm's RebootProgram: asks the hook gateway to have Kubernetes Nodes rebooted.
#
#   reboot.sh                  as slurmd runs it: the Node of this node
#   reboot.sh nodes HOSTLIST   as slurmctld runs it (reboot_from_controller): those of all these nodes
#
# What must stay true: it never reboots anything itself, for in a Pod that would end the Pod and not the
# machine; it ends in a minute, for slurmctld in five, well only if every reboot was noted. slurmctld asks once.
#
# Settings: as prolog.sh.

set -u
trap '' PIPE # Whoever called may not wait for what it says.
# Slurm's daemons give it next to no environment.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
readonly settings=${SUNK_HOOKS_ENV:-/etc/sunk/hooks.env}
# shellcheck disable=SC1090,SC1091
source "$settings" || exit 1 # And bash says which file it misses.
# shellcheck source=gateway.sh
source "${settings%/*}/gateway.sh" || exit 1

readonly at_once=16
bound=60

# Asks once for the reboot of node $1: 0 if it is noted, 2 if that is to be done again, 1 if it would not help.
ask() {
    local left=$((bound - SECONDS)) node=$1
    ((left > 0)) || return 2
    post "/v1/nodes/$node/reboot" '{}' "$((left < 15 ? left : 15))" || {
        echo "sunk reboot: $node: $trouble" >&2
        return 1
    }
    case $status in
        200) return 0 ;;
        408 | 429) ;;
        4??)
            echo "sunk reboot: $node: HTTP $status: $answer" >&2
            return 1
            ;;
    esac
    ((rounds > 0)) || [[ -z $trouble ]] || echo "sunk reboot: $node: $trouble" >&2
    return 2
}

if (($# == 2)) && [[ $1 == nodes ]]; then
    names=$(scontrol show hostnames "$2") || exit 1
    mapfile -t nodes <<<"$names"
    bound=300
else
    # The Pod's host name is the node's name.
    nodes=("${SLURMD_NODENAME:-$(</proc/sys/kernel/hostname)}")
fi
# All are asked for before any is asked for again: one whose Node is not known keeps no other waiting.
code=0 rounds=0
while ((${#nodes[@]} > 0 && SECONDS < bound)); do
    again=()
    for ((first = 0; first < ${#nodes[@]}; first += at_once)); do
        asking=()
        batch=("${nodes[@]:first:at_once}")
        for node in "${batch[@]}"; do
            ask "$node" &
            asking+=("$!")
        done
        for which in "${!asking[@]}"; do
            wait "${asking[which]}"
            case $? in
                0) ;;
                2) again+=("${batch[which]}") ;;
                *) code=1 ;;
            esac
        done
    done
    nodes=("${again[@]}")
    rounds=$((rounds + 1))
    ((${#nodes[@]} == 0)) || sleep "0.$((RANDOM % 6 + 3))"
done
for node in "${nodes[@]}"; do
    echo "sunk reboot: $node: no answer in $bound s" >&2
    code=1
done
exit "$code"
