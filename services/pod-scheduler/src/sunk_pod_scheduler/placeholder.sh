#!/bin/bash
# The placeholder job of a Pod: it holds the Pod's place in Slurm, and ends when the Pod has.
#
# It announces itself, waits for the Pod's end with long polls, and exits as the Pod did. Told to end by
# Slurm (TERM, or USR1 at the start of a preemption's grace) it has the Pod deleted first.
#
# What must stay true: bash runs a trap between two commands only, so everything that lasts is in the
# background, waited for, and $ending is looked at after each wait. A signal that comes right before a wait does
# not end it: so the trap ends the poll itself, and who has just begun one looks whether the trap came before.
# Slurm signals children too, so calls ignore TERM: else they would die before our own trap has run, and a second
# TERM would cut the release off.
#
# From the pod-scheduler: SUNK_HOOKS_URL, with TLS CURL_CA_BUNDLE, SUNK_PLACEHOLDER_TOKEN, and SUNK_HOOKS_ENV, where the
# node's own settings tell where the gateway is by now: a job may have waited for days. Needs bash, and curl where
# there is TLS: a call by curl takes five times the processor time of one by bash, and many start at once.
set -u
ending=
pipe=
poll=
trap 'ending=1; end_poll' TERM USR1

# find_gateway [BEFORE]: the address BEFORE gave no answer. While TLS is turned on or off there are two.
find_gateway() {
    is_second=
    if [[ -r ${SUNK_HOOKS_ENV:-} ]]; then
        unset SUNK_HOOKS_URL_WITHOUT_TLS SUNK_HOOKS_CA_FILE CURL_CA_BUNDLE
        # shellcheck disable=SC1090
        source "$SUNK_HOOKS_ENV"
        if [[ -n ${SUNK_HOOKS_CA_FILE:-} ]]; then export CURL_CA_BUNDLE=$SUNK_HOOKS_CA_FILE; fi
        if [[ -n ${SUNK_HOOKS_URL_WITHOUT_TLS:-} ]]; then
            if [[ -r ${SUNK_HOOKS_CA_FILE:-} && ${1:-} = "$SUNK_HOOKS_URL" ]]; then is_second=1; fi
            if [[ ! -r ${SUNK_HOOKS_CA_FILE:-} || -n $is_second ]]; then SUNK_HOOKS_URL=$SUNK_HOOKS_URL_WITHOUT_TLS; fi
        fi
    fi
    jobs_url=$SUNK_HOOKS_URL/v1/jobs/$SLURM_JOB_ID
}
find_gateway

end_poll() {  # It is told to end, so what the call would say no longer matters.
    if [ -n "$poll" ]; then kill -KILL "$poll" 2>/dev/null; fi
}

pause() {  # seconds: or less, if we are told to end
    sleep "$1" &
    wait $!
    kill $! 2>/dev/null
}

# call METHOD PATH SECONDS [BODY]: sets $status (000: no answer) and $body; a signal cuts it short.
call() {
    try "$@"
    if [[ $status != 000 ]]; then return; fi
    find_gateway "$SUNK_HOOKS_URL"
    if [[ -n $is_second ]]; then
        try "$@"
        find_gateway
    fi
}

try() {
    local pid ended tries=0 with=by_bash
    [[ $jobs_url = https:* ]] && with=by_curl
    status=000 body=
    [ -n "$pipe" ] || exec {pipe}<> <(:)
    (
        trap '' TERM USR1
        "$with" "$@" >&"$pipe" 2>/dev/null
    ) &
    pid=$!
    if [ "$2" != release ]; then poll=$pid; fi
    if [ -n "$ending" ]; then end_poll; fi
    # A connect of bash has no time limit of its own. A process that watched it would cost as much as the call.
    # A TERM that comes before the call ignores it kills it: then nobody will say anything.
    until [ "$with" = by_curl ] || read -r -t 0.5 -u "$pipe"; do
        kill -0 "$pid" 2>/dev/null || break
        if ((++tries == 10)); then kill -KILL "$pid" 2>/dev/null; break; fi
    done
    wait "$pid"
    ended=$?
    poll=
    if kill -KILL "$pid" 2>/dev/null || ((ended > 128)); then
        wait "$pid" 2>/dev/null  # Told to end, or killed: what it was about to say no longer matters.
        exec {pipe}>&-
        pipe=
    else
        read -r -t 1 -u "$pipe" body
        read -r -t 1 -u "$pipe" status
    fi
    status=${status:-000}
}

by_curl() {
    # The token is read from a descriptor: arguments are for everybody to see.
    exec curl --silent --request "$1" --connect-timeout 5 --max-time "$3" ${4:+--data "$4"} \
        --header 'Content-Type: application/json' \
        --header @<(printf 'Authorization: Bearer %s\n' "$SUNK_PLACEHOLDER_TOKEN") \
        --write-out '\n%{http_code}\n' "$jobs_url/$2"
}

# Without TLS. The first line says that it has connected, or cannot.
by_bash() {
    local http line code body text=${4:-}
    [[ $jobs_url =~ ^http://([^]/:[]+|\[[0-9a-fA-F:]+\])(:([0-9]+))?(/.*)$ ]] || { echo; return; }
    local host=${BASH_REMATCH[1]#[} port=${BASH_REMATCH[3]:-80} path=${BASH_REMATCH[4]}/$2
    exec {http}<>"/dev/tcp/${host%]}/$port" || { echo; return; }
    echo
    printf '%s %s HTTP/1.0\r\nHost: %s\r\nAuthorization: Bearer %s\r\n' \
        "$1" "$path" "${BASH_REMATCH[1]}:$port" "$SUNK_PLACEHOLDER_TOKEN" >&"$http"
    printf 'Connection: close\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n%s' \
        "${#text}" "$text" >&"$http"
    read -r -t "$3" -u "$http" line && [[ $line =~ ^HTTP/1\.[01]\ ([0-9]{3}) ]] || return
    code=${BASH_REMATCH[1]}
    while read -r -t 5 -u "$http" line && [ "$line" != $'\r' ]; do :; done
    IFS= read -r -t 5 -u "$http" body
    printf '%s\n%s\n' "$body" "$code"
}

release() {  # Blocks until the Pod is gone, as long as Slurm lets us live.
    while :; do
        call POST release 30
        if [ "$status" = 200 ]; then exit 0; fi
        if [ "$status" != 202 ]; then pause 0.5; fi
    done
}

while :; do
    if [ -n "$ending" ]; then release; fi
    call POST started 10 "{\"node\":\"$SLURMD_NODENAME\"}"
    if [ "$status" = 200 ]; then break; fi
    if [ -z "$ending" ]; then pause 0.5; fi
done

while :; do
    if [ -n "$ending" ]; then release; fi
    call GET outcome 60
    if [ -n "$ending" ]; then continue; fi
    case $status in
        200) [[ $body =~ \"exit_code\":\ *([0-9]+) ]] && exit "${BASH_REMATCH[1]}" ;;
        204) continue ;;
    esac
    pause 1
done
