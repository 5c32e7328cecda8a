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

# Asks for the reboot of node $1 until it is noted.
ask() {
    local left node=$1
    while ((SECONDS < bound)); do
        left=$((bound - SECONDS))
        post "/v1/nodes/$node/reboot" '{}' "$((left < 15 ? left : 15))" || break
        case $status in
            200)
                return 0
                ;;
            408 | 429) ;;
            4??)
                echo "sunk reboot: $node: HTTP $status: $answer" >&2
                return 1
                ;;
        esac
        sleep "0.$((RANDOM % 6 + 3))"
    done
    echo "sunk reboot: $node: ${trouble:-no answer in $bound s}" >&2
    return 1
}

if (($# == 2)) && [[ $1 == nodes ]]; then
    names=$(scontrol show hostnames "$2") || exit 1
    mapfile -t nodes <<<"$names"
    bound=300
else
    # The Pod's host name is the node's name.
    nodes=("${SLURMD_NODENAME:-$(</proc/sys/kernel/hostname)}")
fi
code=0
for ((first = 0; first < ${#nodes[@]}; first += at_once)); do
    asking=()
    for node in "${nodes[@]:first:at_once}"; do
        ask "$node" &
        asking+=("$!")
    done
    for pid in "${asking[@]}"; do
        wait "$pid" || code=1
    done
done
exit "$code"
