# Whether slurmd answers on its port: it listens, takes what connects, and is not stopped. The kernel's tables say so, for
# slurmd logs an error for each connection on which nobody speaks. Arguments: its port, and process 1 of its container.
# shellcheck shell=bash

port=${1:-6818} init=${2:-1}

# Fields: number, local address, remote address, state (0A is LISTEN), sizes of two queues. The second holds the
# connections that nobody has taken yet.
printf -v where '^ *[0-9]+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A ' "$port"
listening=$(grep -Ehs -m 1 "$where" /proc/net/tcp /proc/net/tcp6)
if [[ -z $listening ]]; then
    echo "slurmd does not listen on port $port"
    exit 1
fi
while read -r _ _ _ _ queues _; do
    if [[ ${queues#*:} != 00000000 ]]; then
        echo "slurmd does not take what connects to port $port"
        exit 1
    fi
done <<<"$listening"

# It is process 1 or a child of it, beside the steps of jobs; Debian's is slurmd-wlm. A kernel that does not list children has said enough.
children=
read -r children 2>/dev/null <"/proc/$init/task/$init/children"
for process in $init $children; do
    read -r name 2>/dev/null <"/proc/$process/comm" && [[ $name == slurmd* ]] || continue
    read -r stat 2>/dev/null <"/proc/$process/stat" || continue
    stat=${stat##*) }
    if [[ ${stat:0:1} == [TtZX] ]]; then
        echo "slurmd is stopped: its process is in state ${stat:0:1}"
        exit 1
    fi
    break
done
exit 0
