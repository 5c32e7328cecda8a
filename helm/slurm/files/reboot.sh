#!/bin/bash
# Slurm's RebootProgram: asks the hook gateway to have this node's Kubernetes Node rebooted.
#
# What must stay true: it never reboots anything itself, for in a Pod that would end the Pod and not the
# machine; it ends in a minute, well only if the reboot was noted.
#
# Settings: as prolog.sh.

set -u
# slurmd gives it next to no environment.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
# shellcheck disable=SC1090,SC1091
source "${SUNK_HOOKS_ENV:-/etc/sunk/hooks.env}"

# The Pod's host name is the node's name.
readonly node=${SLURMD_NODENAME:-$(</proc/sys/kernel/hostname)} bound=60

while ((SECONDS < bound)); do
    # The token goes through standard input: arguments can be read by everybody on the node.
    answer=$(printf 'Authorization: Bearer %s\n' "$(<"${SUNK_HOOKS_TOKEN_FILE:-/var/run/secrets/sunk/token}")" |
        curl --silent --header @- --header 'Content-Type: application/json' --data '{}' \
            --connect-timeout 5 --max-time 15 --write-out '\n%{http_code}' "$SUNK_HOOKS_URL/v1/nodes/$node/reboot")
    case ${answer##*$'\n'} in
        200)
            exit 0
            ;;
        4??)
            echo "sunk reboot: $node: HTTP ${answer##*$'\n'}: ${answer%$'\n'*}" >&2
            exit 1
            ;;
    esac
    sleep "0.$((RANDOM % 6 + 3))"
done
echo "sunk reboot: $node: no answer in $bound s" >&2
exit 1
