# Whether slurmd answers on its port: it listens, takes what connects, and is not stopped. The kernel's tables say so, for
# slurmd logs an error for each connection on which nobody speaks. It runs as root, and only what is root's is looked at: a job
# may listen on its port of an address that it leaves free, or call a process slurmd. Arguments: its port, process 1 of its
# container, and whose slurmd is, which tests name.
# shellcheck shell=bash

port=${1:-6818} init=${2:-1} owner=${3:-0}

# Fields: number, local address, remote address, state (0A is LISTEN), sizes of two queues, a timer, retransmissions, user. The
# second queue holds the connections that nobody has taken yet.
printf -v where '^ *[0-9]+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A [^ ]+ [^ ]+ [^ ]+ +%d ' "$port" "$owner"
listening=$(grep -Ehs "$where" /proc/net/tcp /proc/net/tcp6)
if [[ -z $listening ]]; then
    echo "slurmd does not listen on port $port"
    exit 1
fi
while read -r _ _ _ _ queues _; do
    if [[ ${queues#*:} != 00000000 ]]; then
        echo "slurmd does not accept connections to port $port"
        exit 1
    fi
done <<<"$listening"

# It is process 1 or a child of it, beside the steps of jobs; Debian's is slurmd-wlm. A kernel that does not list children has said enough.
children=
read -r children 2>/dev/null <"/proc/$init/task/$init/children"
for process in $init $children; do
    read -r name 2>/dev/null <"/proc/$process/comm" && [[ $name == slurmd* ]] || continue
    uid=
    while read -r word uid _ && [[ $word != Uid: ]]; do :; done 2>/dev/null <"/proc/$process/status"
    [[ $uid == "$owner" ]] || continue
    read -r stat 2>/dev/null <"/proc/$process/stat" || continue
    stat=${stat##*) }
    if [[ ${stat:0:1} == [TtZX] ]]; then
        echo "slurmd is stopped: its process is in state ${stat:0:1}"
        exit 1
    fi
    break
done
exit 0
