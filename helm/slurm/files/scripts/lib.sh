# Sourced by the scripts that start Pods as root.

# Whether munged, in a container of its own, signs for Slurm, and not Slurm itself.
has_munge() {
    [[ ${SUNK_AUTH:-} == munge ]]
}

# A Secret's files are root's. slurmd wants its key for itself and /run/slurm to be root's.
install_key() {
    install -d -m 755 /run/slurm
    ! has_munge || return 0
    install -d -o slurm -g slurm -m 700 /run/slurm-keys
    install -o slurm -g slurm -m 600 /secret/slurm.key /run/slurm-keys/slurm.key
}

# The daemon that this shell becomes reads its set of keys again when that is another one, asked every $1 seconds: it starts
# over in the same process, and neither a job nor a session ends. More words are what comes first.
follow_keys() {
    ! has_munge || return 0
    local pause=$1 daemon=$$ known now
    shift
    known=$(cksum "$SLURM_SACK_JWKS" 2>/dev/null) || known=
    while sleep "$pause"; do
        # With an empty set the daemon would end, and a slurmd's jobs with it.
        [[ -s $SLURM_SACK_JWKS ]] && now=$(cksum "$SLURM_SACK_JWKS") && [[ $now != "$known" ]] || continue
        "$@"
        echo "the keys of auth/slurm have changed: this daemon reads them again" >&2
        kill -HUP "$daemon" || return 0
        known=$now
    done &
}

# A slurmctld that reads anything again has each slurmd start over, and a job that was in its prolog is never launched: it is
# RUNNING without its script (seen on 24.11 and 26.05). Returns when no job is, or after as long as a prolog may take.
let_prologs_end() {
    local limit until reasons
    limit=$(sed -n 's/^PrologEpilogTimeout=//p' "${SLURM_CONF:-/etc/slurm/slurm.conf}")
    until=$((SECONDS + ${limit:-90}))
    while ((SECONDS < until)); do
        if reasons=$(timeout 10 squeue --noheader --states=RUNNING --format=%r) && [[ $'\n'$reasons$'\n' != *$'\nProlog\n'* ]]; then
            break
        fi
        sleep 1
    done
}

# Whether the slurmctld that this shell becomes waits for another one to die. One that leads has a thread that saves its state.
stands_by() {
    ! grep -qsx sstate "/proc/$$"/task/*/comm
}

# A slurmctld that stands by reads no keys at SIGHUP: it would take over with those of before, and no slurmd would believe it
# (seen on 24.11 and 26.05). Its container starts it again. For one that leads, its words are the command to run first.
end_standby() {
    if ! stands_by; then
        "$@"
        return
    fi
    echo "the keys of auth/slurm have changed: this standby slurmctld starts again with them" >&2
    kill -TERM $$
    exit
}

# Where slurmd and sackd fetch slurm.conf: from the first slurmctld that answers. The list is mounted, since a variable would
# make another template of a compute Pod when a backup is added.
conf_servers() {
    cat /etc/sunk/scripts/slurmctlds 2>/dev/null || echo "$SUNK_CONTROLLER"
}

# Has users find the program $1/sunkctl.py in the folder $2, if they may ask. The image may have the whole sunkctl.
add_sunkctl() {
    grep -qx SUNK_LOGIN_EXPLAIN=true "$1/hooks.env" || return 0
    type -P sunkctl >/dev/null || { mkdir -p "$2" && ln -sf "$1/sunkctl.py" "$2/sunkctl"; } ||
        echo "cannot put sunkctl into $2: users can call $1/sunkctl.py" >&2
}

# Accounts of the values, where the image has none of the name; and whose they were.
ours=/run/sunk-users
add_users() {
    local file line
    for file in passwd group; do
        while IFS= read -r line; do
            [[ -z $line ]] || grep -q "^${line%%:*}:" "/etc/$file" || {
                [[ $file != passwd ]] || echo "${line%%:*}" >>"$ours"
                echo "$line" >>"/etc/$file"
            }
        done <"/etc/sunk/users/$file"
    done
}

# ssh: who is not in the values any more has no shell, so sshd refuses him, whatever keys are in his home. His name stays
# for what still runs. Who is there again has the shell of the values.
shut_out() {
    local name line
    [[ -f $ours ]] || return 0
    while IFS= read -r name; do
        line=$(grep "^$name:" /etc/sunk/users/passwd) ||
            line=$(sed -n "s|^\($name:.*:\)[^:]*$|\1/not-in-users|p" /etc/passwd)
        [[ -n $line ]] && ! grep -qxF "$line" /etc/passwd || continue
        line=$line awk -F : -v name="$name" '{ print $1 == name ? ENVIRON["line"] : $0 }' /etc/passwd >/etc/passwd.new
        chmod 644 /etc/passwd.new
        mv -T /etc/passwd.new /etc/passwd
    done < <(sort -u "$ours")
}

# Every $1 seconds, those that came since: neither a job nor a session ends for a user. More words are what to do then.
follow_users() {
    local pause=$1
    shift
    while sleep "$pause"; do
        add_users && "$@" || true
    done
}

# ssh: the keys of the values, those of today alone, and a home for each user where there is none yet.
let_users_in() {
    local file user home
    shut_out
    for file in /etc/sunk/authorized_keys/*; do
        [[ ! -f $file || -f /etc/sunk/users/${file##*/}.keys ]] || rm -f "$file"
    done
    for file in /etc/sunk/users/*.keys; do
        [[ -f $file ]] || continue
        user=$(basename "$file" .keys)
        cmp -s "$file" "/etc/sunk/authorized_keys/$user" || install -m 644 "$file" "/etc/sunk/authorized_keys/$user"
        home=$(getent passwd "$user" | cut -d: -f6)
        # A shared file system may keep root from it.
        [[ -z $home || -d $home ]] || install -d -o "$user" -g "$(id -g "$user")" -m 700 "$home" ||
            echo "sunk login: $home of $user does not exist and cannot be created here: create it on the machine that has the file system" >&2
    done
}

# Limits of slurmd, which every job has from it (PropagateResourceLimits=NONE).
set_limits() {
    local flag name variable
    for name in memlock nofile stack; do
        case $name in memlock) flag=-l ;; nofile) flag=-n ;; stack) flag=-s ;; esac
        variable=SUNK_LIMIT_${name^^}
        [[ -z ${!variable:-} ]] || ulimit "$flag" "${!variable}" || {
            echo "compute.limits.$name: this container may not have ${!variable}: give slurmd the capability SYS_RESOURCE (securityContext of the set), and allow it in the namespace" >&2
            return 1
        }
    done
}

# Where each job has a folder of its own, in Pods that have a volume for it (compute.scratch).
scratch=/local/scratch

# A volume may come with everybody's rights: then a user could prepare the folder of another's job. What lies there is of
# jobs that ended with the slurmd before.
own_scratch() {
    local folder
    chown root:root "$scratch"
    chmod 755 "$scratch"
    for folder in "$scratch"/*; do
        [[ ! -e $folder && ! -L $folder ]] || mv -T "$folder" "$scratch/.gone-${folder##*/}-$$"
    done
}

# Every $1 seconds, what ended jobs left: an epilog only puts it aside, since millions of files take their time.
empty_scratch() {
    while sleep "$1"; do
        rm -rf --one-file-system "$scratch"/.gone-* || true
    done
}

# Services of the values: what is run once ends before the next starts; what runs long is started again when it ends.
start_services() {
    local script
    for script in /etc/sunk/services/*; do
        case $script in
            *.oneshot) bash "$script" || return ;;
            *.longrun) (while :; do bash "$script" || true; sleep 1; done) & ;;
        esac
    done
}

# Linux 6.18 numbers namespaces by CPU, in lots of 4,096, and refuses to keep a mount namespace whose number is below that of the
# one it is kept in (EINVAL; kernels before and since count them all together). A job with a /tmp of its own that starts on such
# a CPU fails. So each CPU makes namespaces until its numbers are past this container's, and there they stay.
outrun_namespaces() {
    local kept=/run/sunk-namespaces range cpu turn started=()
    mkdir -p "$kept" && mount --bind --make-private "$kept" "$kept" || return 0
    for range in $(sed -n '/^Cpus_allowed_list:/s/[^0-9-]/ /gp' /proc/self/status); do
        for cpu in $(seq "${range%-*}" "${range#*-}"); do
            : >"$kept/$cpu"
            for turn in {1..20}; do
                ! taskset -c "$cpu" unshare --mount="$kept/$cpu" true 2>/dev/null || break
                taskset -c "$cpu" bash -c 'for turn in {1..100}; do unshare --mount --uts --ipc --cgroup --time true; done' || break
            done &
            started+=($!)
        done
    done
    wait "${started[@]}"
    umount --lazy "$kept" && rm -r "$kept"
}

# Runs a command of Slurm's while slurmd, which vouches for it and has slurm.conf, does not run yet.
with_sackd() {
    local conf=/run/slurm/conf sackd turn
    sackd -D --conf-server "$(conf_servers)" &
    sackd=$!
    for ((turn = 0; turn < 100; turn++)); do
        [[ ! -r $conf/slurm.conf ]] || { ! has_munge && [[ ! -S /run/slurm/sack.socket ]]; } || break
        sleep 0.1
    done
    SLURM_CONF=$conf/slurm.conf "$@"
    kill "$sackd" 2>/dev/null || true
    wait "$sackd" || true
    rm -rf "$conf" /run/slurm/sack.socket
}

# The state of a node, of what `scontrol --oneliner show node` says in $1. It is the first word so named: comments, Extra and
# reasons, which people write, come after it.
state_of() {
    [[ $1 =~ \ State=([^\ ]*) ]] && printf '%s' "${BASH_REMATCH[1]}"
}

# Why the node $1 is drained or down: a column of its own, so that nothing else in its record passes for it.
reason_of() {
    local reason
    reason=$(timeout 10 sinfo --noheader --Node --nodes="$1" --format=%E) && printf '%s' "${reason%%$'\n'*}"
}

# Whether an administrator set a node of the state $1 and the reason $2 down, and Slurm does not have it up by itself once its slurmd
# registers. A drain of the syncer's keeps why the node is down (down_reasons.py).
is_down_by_hand() {
    local why=$2
    [[ $1 == DOWN* ]] && ! grep -qsx ReturnToService=2 "${SLURM_CONF:-/etc/slurm/slurm.conf}" || return
    [[ $why != *'; was down: '* ]] || why=${why#*'; was down: '}
    [[ $why != k8s:* && $why != 'Not responding' && $why != none ]]
}

# Slurm keeps the size that it knows of a node, whatever slurmd says: where the node $1 has nothing to do and now has
# another than $2 CPUs, $3 MiB, the GPUs $4 (`gpu:TYPE:COUNT`; empty: as before) and $5 MiB of scratch (empty: the same), its record is
# deleted and slurmd makes it anew. With the record what somebody said of the node would go: then the size waits.
forget_another_size() {
    local known state reason gres=${4:-}
    known=$(timeout 10 scontrol --oneliner show node "$1" 2>/dev/null) || return 0
    [[ $known != *" CPUTot=$2 "* || $known != *" RealMemory=$3 "* || (-n ${5:-} && $known != *" TmpDisk=$5 "*) ||
        (-n $gres && $known != *" Gres=$gres"[\ \(,]*) ]] || return 0
    state=$(state_of "$known") && reason=$(reason_of "$1") || return 0
    if [[ $known != *' CPUAlloc=0 '* || $state =~ COMPLETING|MAINT|RESERVED || ($state == *DRAIN* && $reason != k8s:*) ]] ||
        is_down_by_hand "$state" "$reason"; then
        echo "Slurm keeps the former size of $1 until slurmd starts there while the node is idle, not drained and not down" >&2
        return 0
    fi
    timeout 10 scontrol delete nodename="$1" || true
}

# What Slurm still has running on the node $1 whose slurmd is about to start went with the container before: its processes are
# dead, and nobody may have seen it go. Slurm itself finds that out after minutes (BatchStartTimeout). Set down, as by the syncer
# where that saw it, the node has its jobs requeued or ended as their settings say, and its slurmd brings it back. A drain that is
# there keeps its reason. So does a node that is down: Slurm ended its jobs then.
end_lost_jobs() {
    local jobs shown state reason='k8s: pod terminated'
    # squeue's own filter of states knows no job that is RUNNING and also STOPPED, SIGNALING or RESIZING.
    jobs=$(timeout 10 squeue --noheader --nodelist="$1" --format=%T 2>/dev/null) && [[ ${jobs//COMPLETING/} =~ [A-Z] ]] || return 0
    shown=$(timeout 10 scontrol --oneliner show node "$1") || return 0
    state=$(state_of "$shown") || return 0
    if [[ $state == *DRAIN* ]]; then
        reason=$(reason_of "$1") || return 0
    elif [[ $state == DOWN* ]]; then
        return 0
    fi
    echo "the jobs that Slurm has running on $1 ended with the earlier slurmd: the node is set down" >&2
    timeout 10 scontrol update nodename="$1" state=down reason="$reason" || true
}

# The GPUs that slurmd announces (`gpu:TYPE:COUNT`): those of the values, else those that the nodeset-controller read of the
# Node. Slurm makes a node unusable that announces more GPUs than its slurmd finds. So the Node's are announced only where this
# container has as many devices, and where Slurm's own detection knows them by that type: a part of the driver's name, in small
# letters. A generated gres.conf names the devices itself: the nodeset-controller says so (SUNK_NODE_GRES_LISTED), as sackd, which
# runs meanwhile, fetches slurm.conf and no gres.conf.
node_gres() {
    local given=${SUNK_NODE_GRES:-} count type='' driver=${SUNK_GPU_DRIVER:-/proc/driver/nvidia} devices found=0 model
    if [[ -n ${SUNK_GRES:-} || -z $given || ${SUNK_NODE_CONF:-} =~ [Gg][Rr][Ee][Ss]= ]]; then
        printf '%s' "${SUNK_GRES:-}"
        return 0
    fi
    count=${given##*:}
    [[ $given != gpu:*:* ]] || { type=${given#gpu:} type=${type%:*}; }
    devices=("${SUNK_GPU_FILES:-/dev/nvidia}"[0-9]*)
    [[ -e ${devices[0]} ]] || devices=()
    if ((${#devices[@]} < count)); then
        echo "the Node has $given, and this container has ${#devices[@]} of its devices: slurmd does not announce them; give slurmd the devices (runtimeClassName of the set, NVIDIA_VISIBLE_DEVICES=all)" >&2
        return 0
    fi
    if [[ ${SUNK_NODE_GRES_LISTED:-} != true ]]; then
        while IFS= read -r model; do
            [[ $model != *"$type"* ]] || found=$((found + 1))
        done < <(sed -n 's/^Model:[[:space:]]*//p' "$driver"/gpus/*/information 2>/dev/null | tr 'A-Z ' 'a-z_')
        if ((found < count)); then
            echo "the Node has $given, and the driver knows $found GPUs of that name ($driver/gpus): slurmd does not announce them; in gpuTypes write a part of the driver's name, in small letters with _ for spaces" >&2
            return 0
        fi
    fi
    printf '%s' "$given"
}

# Where in Slurm's topologies slurmd says that the node is: what the nodeset-controller made of the Node's labels, as far as
# slurmctld has these topologies. A slurmd of 24.11 does not start with such a word. A node that names a block that topology.yaml
# does not have yet is INVALID_REG: such a block is left out, and the syncer says it later.
node_topology() {
    local given=${SUNK_NODE_TOPOLOGY:-} version word words shown said=()
    [[ -n $given && ! ${SUNK_NODE_CONF:-} =~ [Tt][Oo][Pp][Oo][Ll][Oo][Gg][Yy]= ]] || return 0
    version=$(slurmd -V) && version=${version##* } && [[ $version =~ ^([0-9]+)\.([0-9]+) ]] || return 0
    ((10#${BASH_REMATCH[1]}${BASH_REMATCH[2]} >= 2505)) || return 0
    IFS=, read -ra words <<<"$given"
    for word in "${words[@]}"; do
        # Without a pipe: a grep that has found its word ends, and what still writes to it fails.
        shown=$(timeout 10 scontrol show topology "${word%%:*}" 2>/dev/null) || continue
        case $word in
            tree:*) [[ $'\n'$shown == *$'\nSwitchName=all '* ]] || continue ;;
            block:*) [[ $'\n'$shown == *$'\nBlockName='"${word#block:} "* ]] || continue ;;
            *) continue ;;
        esac
        said+=("$word")
    done
    (IFS=, && printf '%s' "${said[*]}")
}

# What is to be settled with Slurm before slurmd starts; jobs come first, as a record with jobs keeps its size. Afterwards `gres`
# is what slurmd announces, and `topology` where it says that it is. Arguments: the node, its CPUs, MiB of memory and MiB of scratch.
settle() {
    gres=$(node_gres)
    topology=$(node_topology)
    end_lost_jobs "$1"
    forget_another_size "$1" "$2" "$3" "$gres" "${4:-}"
}
