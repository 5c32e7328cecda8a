# shellcheck shell=bash
# Sourced by prolog.sh, epilog.sh, reboot.sh and check.sh, beside whose settings it stands: how they call the
# hook gateway, and for how long Slurm lets them.
#
# What must stay true: the token is no argument of anything, for arguments can be read by everybody on the
# node; half an answer is none; every call ends in time.
#
# Settings: SUNK_HOOKS_URL, SUNK_HOOKS_TOKEN_FILE, and with https SUNK_HOOKS_CA_FILE. SUNK_HOOKS_URL_WITHOUT_TLS,
# while TLS is turned on or off, is where a Pod calls that has no such file, and whose call by TLS got no answer.

# shellcheck disable=SC2034 # For those who source this.
status=000 answer='' trouble=''

# Prints $1 as a string of JSON. No text of ours has control characters.
quoted() {
    local text=${1//[[:cntrl:]]/}
    text=${text//\\/\\\\}
    printf '"%s"' "${text//\"/\\\"}"
}

# Calls POST $1 with the body $2, for $3 seconds at most. Sets status (000 without an answer) and answer.
# Fails, with the reason in trouble, where the same call would fail again.
# shellcheck disable=SC2034
post() {
    local token why end=$((SECONDS + $3))
    status=000 answer='' trouble=''
    # Where the gateway is may have changed since this script began.
    if [[ -r ${settings:-} ]]; then
        unset SUNK_HOOKS_URL_WITHOUT_TLS
        # shellcheck disable=SC1090
        source "$settings"
    fi
    if [[ -z ${SUNK_HOOKS_URL:-} ]]; then
        trouble='SUNK_HOOKS_URL is not set'
        return 1
    fi
    token=${SUNK_HOOKS_TOKEN_FILE:-/var/run/secrets/sunk/token}
    if [[ ! -s $token || ! -r $token ]]; then
        trouble="SUNK_HOOKS_TOKEN_FILE=$token cannot be read, or is empty"
        return 1
    fi
    token=$(<"$token")
    if [[ -z ${SUNK_HOOKS_URL_WITHOUT_TLS:-} ]]; then
        post_to "$SUNK_HOOKS_URL" "$@"
        return
    fi
    if [[ -r ${SUNK_HOOKS_CA_FILE:-} ]]; then
        post_to "$SUNK_HOOKS_URL" "$@" || :
        [[ $status = 000 ]] && ((SECONDS < end)) || return 0
    fi
    why=$trouble
    post_to "$SUNK_HOOKS_URL_WITHOUT_TLS" "$1" "$2" "$((end - SECONDS))" || return
    if [[ $status = 000 ]]; then trouble=$why; fi
}

# $1: the gateway's address; then as `post`, whose token it sends.
# shellcheck disable=SC2034
post_to() {
    local said url=$1
    shift
    trouble=''
    if type -P curl >/dev/null; then
        said=$(printf 'Authorization: Bearer %s\n' "$token" | post_by_curl "$url$1" "$2" "$3") || {
            (($? == 60)) && trouble='SUNK_HOOKS_CA_FILE has no CA of the certificate of the hook gateway'
            return 0
        }
        status=${said##*$'\n'}
        answer=${said%$'\n'*}
    elif [[ $url =~ ^http://([^]/:[]+|\[[0-9a-fA-F:]+\])(:([0-9]+))?(/.*)?$ ]]; then
        said=$(printf '%s\n' "$token" |
            post_by_bash "${BASH_REMATCH[1]}" "${BASH_REMATCH[3]:-80}" "${BASH_REMATCH[4]}$1" "$2" "$3")
        if [[ $said =~ ^HTTP/1\.[01]\ ([0-9]{3}) && $said == *$'\r\n\r\n'*'}' ]]; then
            status=${BASH_REMATCH[1]}
            answer=${said#*$'\r\n\r\n'}
        fi
    else
        trouble="no curl in this image, and bash alone cannot call ${url%%:*} addresses"
        return 1
    fi
}

# $1: address, $2: body, $3: seconds; the header is standard input.
post_by_curl() {
    curl --silent --header @- --header 'Content-Type: application/json' --data "$2" \
        ${SUNK_HOOKS_CA_FILE:+--cacert "$SUNK_HOOKS_CA_FILE"} --connect-timeout 5 --max-time "$3" \
        --keepalive-time 2 \
        --write-out '\n%{http_code}' "$1"
}

# $1: host, $2: port, $3: path, $4: body, $5: seconds; the token is standard input.
post_by_bash() {
    local host=${1#[} token
    read -r token
    printf 'POST %s HTTP/1.0\r\nHost: %s\r\nAuthorization: Bearer %s\r\n' "$3" "$1:$2" "$token" |
        cat - <(printf 'Content-Type: application/json\r\nContent-Length: %s\r\n\r\n%s' "${#4}" "$4") |
        timeout --kill-after=1 "$5" bash -c 'exchange "$@"' exchange "${host%]}" "$2"
}

# Sends standard input to $1, port $2, and prints what comes back. A process of its own, for bash cannot
# bound a connect: whoever waits for five seconds ends it.
exchange() {
    { sleep 5 && kill "$$"; } &>/dev/null &
    exec 3<>"/dev/tcp/$1/$2" || exit
    kill "$!"
    cat >&3
    cat <&3
}
export -f exchange

# Prints after how many seconds Slurm ends a script of the kind $1 (Prolog or Epilog); nothing where it does
# not, or where that is not in the file that slurmd reads.
slurms_limit() {
    local conf key value
    { conf=$(<"${SLURM_CONF:-/etc/slurm/slurm.conf}"); } 2>/dev/null || return 0
    shopt -s nocasematch
    for key in "$1Timeout" PrologEpilogTimeout; do
        # Of a key given twice the last holds.
        if [[ $'\n'$conf =~ .*$'\n'[[:blank:]]*"$key"[[:blank:]]*=[[:blank:]]*([0-9]+) ]]; then
            value=${BASH_REMATCH[1]}
            ((value == 0 || value >= 65534)) || echo "$value"
            break
        fi
    done
    shopt -u nocasematch
}
