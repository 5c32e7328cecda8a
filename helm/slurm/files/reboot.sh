#!/bin/bash
# Slurm's RebootProgram: asks the hook gateway to have this node's Kubernetes Node rebooted.
#
# What must stay true: it never reboots anything itself, for in a Pod that would end the Pod and not the
# machine; it ends in a minute, well only if the reboot was noted.
#
# Settings: as prolog.sh.

set -u
trap '' PIPE # Whoever called may not wait for what it says.
# slurmd gives it next to no environment.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
readonly settings=${SUNK_HOOKS_ENV:-/etc/sunk/hooks.env}
# shellcheck disable=SC1090,SC1091
source "$settings" || exit 1 # And bash says which file it misses.
# shellcheck source=gateway.sh
source "${settings%/*}/gateway.sh" || exit 1

# The Pod's host name is the node's name.
readonly node=${SLURMD_NODENAME:-$(</proc/sys/kernel/hostname)} bound=60

while ((SECONDS < bound)); do
    left=$((bound - SECONDS))
    post "/v1/nodes/$node/reboot" '{}' "$((left < 15 ? left : 15))" || break
    case $status in
        200)
            exit 0
            ;;
        408 | 429) ;;
        4??)
            echo "sunk reboot: $node: HTTP $status: $answer" >&2
            exit 1
            ;;
    esac
    sleep "0.$((RANDOM % 6 + 3))"
done
echo "sunk reboot: $node: ${trouble:-no answer in $bound s}" >&2
exit 1
