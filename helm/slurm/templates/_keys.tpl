{{- /* Ids of the keys of auth/slurm in the data of a Secret, as a JSON list; the first one signs. */ -}}
{{- define "slurm.keyIds" -}}
{{- $ids := list }}
{{- range (index . "slurm.jwks" | default "" | b64dec | default "{}" | fromJson).keys }}{{ $ids = append $ids .kid }}{{ end }}
{{- toJson $ids }}
{{- end }}

{{- /*
What the Secret has of auth/slurm, as JSON: jwks (the set, as Slurm reads it), first (the key that signs, in base64) and
since (when the set became another). A key is made once, with its id; the first id of a release that had one key
takes that. Arguments: root, old (the Secret that is there).
*/ -}}
{{- define "slurm.keySet" -}}
{{- $ids := .root.Values.keys.slurmKeyIds }}
{{- $data := dig "data" dict .old }}
{{- $before := include "slurm.keyIds" $data | fromJsonArray }}
{{- $known := dict }}
{{- if $before }}
{{- range (index $data "slurm.jwks" | b64dec | fromJson).keys }}{{ $_ := set $known .kid .k }}{{ end }}
{{- else if index $data "slurm.key" }}
{{- $_ := set $known (first $ids) (index $data "slurm.key") }}
{{- end }}
{{- $keys := list }}
{{- range $id := $ids }}
{{- $key := dict "kid" $id "kty" "oct" "alg" "HS256" "k" (get $known $id | default (randBytes 64)) }}
{{- if not $keys }}{{ $_ := set $key "use" "default" }}{{ end }}
{{- $keys = append $keys $key }}
{{- end }}
{{- $since := dig "metadata" "annotations" "sunk.coreweave.com/slurm-keys-since" "0" .old }}
{{- if and $before (ne (toJson $before) (toJson $ids)) }}{{ $since = now | unixEpoch }}{{ end }}
{{- dict "jwks" (dict "keys" $keys | toJson) "first" (first $keys).k "since" $since | toJson }}
{{- end }}

{{- /*
A key signs only when every daemon knows it, and goes only when nothing that it signed is under way; else nodes and
slurmctld do not understand each other, and jobs end. Arguments: root, secret (what is there), pods (of the release).
*/ -}}
{{- define "slurm.checkKeys" -}}
{{- $ids := .root.Values.keys.slurmKeyIds }}
{{- $before := include "slurm.keyIds" (dig "data" dict .secret) | fromJsonArray }}
{{- if and $before (ne (toJson $before) (toJson $ids)) (not .root.Values.keys.existingSecret) }}
{{- if not (has (first $ids) $before) }}
{{- fail (printf "keys.slurmKeyIds: %s is new, and daemons that do not have it yet would reject what it signs: first add it at the end, as %s" (first $ids) (append $before (first $ids) | toJson)) }}
{{- end }}
{{- if not (has (first $before) $ids) }}
{{- fail (printf "keys.slurmKeyIds: %s is the key that signs now: first put another key before it, and remove it in the next upgrade" (first $before)) }}
{{- end }}
{{- $left := sub (add (dig "metadata" "annotations" "sunk.coreweave.com/slurm-keys-since" "0" .secret | int64) (include "slurm.keysSpread" .root | int64)) (now | unixEpoch | int64) }}
{{- if gt $left 0 }}
{{- fail (printf "keys.slurmKeyIds: they changed to %s less than %s s ago, and some daemons may not have the last key yet: try again in %d s" (toJson $before) (include "slurm.keysSpread" .root) $left) }}
{{- end }}
{{- range $pod := .pods | default (lookup "v1" "Pod" .root.Release.Namespace "" | default dict).items }}
{{- if eq (dig "labels" "app.kubernetes.io/instance" "" $pod.metadata) $.root.Release.Name }}
{{- range $container := $pod.spec.containers }}
{{- if eq $container.name "slurmd" }}
{{- $names := list }}
{{- range $container.env }}{{ $names = append $names .name }}{{ end }}
{{- if not (has "SLURM_SACK_JWKS" $names) }}
{{- fail (printf "keys.slurmKeyIds: the Pod %s was created by an earlier version and knows only one key: wait until its set is updated" $pod.metadata.name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Seconds until a changed set of keys is everywhere: a kubelet brings it, slurmd lets prologs end, and credentials run out. */ -}}
{{- define "slurm.keysSpread" -}}
{{ add 120 (mul 2 (include "slurm.credentialLife" . | int)) }}
{{- end }}
