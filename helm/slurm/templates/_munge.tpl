{{- /*
auth.type munge: a container with munged beside each of Slurm's daemons and clients. Its socket is in a volume of the Pod;
only it sees the key. All of it is empty with auth.type slurm.
*/ -}}

{{- /* Not empty with auth.type munge. */ -}}
{{- define "slurm.hasMunge" -}}
{{- if eq .Values.auth.type "munge" }}true{{ end }}
{{- end }}

{{- /*
The container, as an item of initContainers: the first, since it runs before the others start and as long as they do.
Arguments: root, values (whose image it runs).
*/ -}}
{{- define "slurm.mungeContainer" -}}
{{- if include "slurm.hasMunge" .root }}
- name: munged
  {{- include "slurm.slurmImage" . | nindent 2 }}
  restartPolicy: Always
  args: [/etc/sunk/munge-scripts/start-munged]
  startupProbe: {exec: {command: [test, -S, /run/munge/munge.socket.2]}, periodSeconds: 1, failureThreshold: 60}
  {{- include "slurm.restricted" . | nindent 2 }}
  resources:
    {{- toYaml .root.Values.auth.munge.resources | nindent 4 }}
  volumeMounts:
    - {name: munge-scripts, mountPath: /etc/sunk/munge-scripts, readOnly: true}
    - {name: munge-secret, mountPath: /secret, readOnly: true}
    - {name: munge-key, mountPath: /run/munge-key}
    - {name: munge, mountPath: /run/munge}
{{- end }}
{{- end }}

{{- /* For a container that runs a daemon or a client of Slurm. Arguments: root. */ -}}
{{- define "slurm.mungeMount" -}}
{{- if include "slurm.hasMunge" .root }}
- {name: munge, mountPath: /run/munge, readOnly: true}
{{- end }}
{{- end }}

{{- /* Arguments: root. */ -}}
{{- define "slurm.mungeVolumes" -}}
{{- if include "slurm.hasMunge" .root }}
- name: munge-scripts
  configMap: {name: {{ include "slurm.fullname" .root }}-scripts, defaultMode: 0755, items: [{key: start-munged, path: start-munged}]}
- name: munge-secret
  projected:
    defaultMode: 0400
    sources:
      - secret: {name: {{ include "slurm.keysSecret" .root }}, items: [{key: munge.key, path: munge.key}]}
      # While a rotation is under way: the next key, and when it holds.
      - secret: {name: {{ include "slurm.keysSecret" .root }}, optional: true, items: [{key: munge.next, path: munge.next}, {key: munge.at, path: munge.at}]}
- {name: munge-key, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: munge, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
{{- end }}
{{- end }}

{{- /*
What the Secret has of MUNGE, as JSON: key, next and at (in base64; both empty but in a rotation) and id. munged knows one
key, so all of them change at one moment: that which the Secret names, after each kubelet has brought it. Arguments: root,
old (the Secret that is there).
*/ -}}
{{- define "slurm.mungeKeys" -}}
{{- $data := dig "data" dict .old }}
{{- $id := .root.Values.keys.mungeKeyId }}
{{- $before := dig "metadata" "annotations" "sunk.coreweave.com/munge-key-id" $id .old }}
{{- $key := index $data "munge.key" | default "" }}
{{- $next := index $data "munge.next" | default "" }}
{{- $at := index $data "munge.at" | default "" }}
{{- $now := now | unixEpoch | int64 }}
{{- if and $next (ge $now (add (b64dec $at | int64) (include "slurm.mungeSpread" . | int64))) }}
{{- $key = $next }}{{ $next = "" }}{{ $at = "" }}
{{- end }}
{{- if not $key }}
{{- $key = randBytes 128 }}
{{- else if ne $before $id }}
{{- $next = randBytes 128 }}
{{- $at = add $now (include "slurm.mungeSpread" . | int64) | toString | b64enc }}
{{- end }}
{{- dict "key" $key "next" $next "at" $at "id" $id | toJson }}
{{- end }}

{{- /* Seconds until each kubelet has brought a changed Secret. */ -}}
{{- define "slurm.mungeSpread" -}}
180
{{- end }}

{{- /* A rotation ends before the next begins. Arguments: root, secret (what is there). */ -}}
{{- define "slurm.checkMungeKey" -}}
{{- $id := .root.Values.keys.mungeKeyId }}
{{- $before := dig "metadata" "annotations" "sunk.coreweave.com/munge-key-id" $id .secret }}
{{- $at := dig "data" "munge.at" "" .secret }}
{{- if and $at (ne $before $id) (not .root.Values.keys.existingSecret) }}
{{- $left := sub (add (b64dec $at | int64) (include "slurm.mungeSpread" . | int64)) (now | unixEpoch | int64) }}
{{- if gt $left 0 }}
{{- fail (printf "keys.mungeKeyId: not all Pods have the change to %q yet: try again in %d s" $before $left) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Daemons with another auth.type do not understand each other. Arguments: root, conf (the ConfigMap of slurm.conf that is there), pods. */ -}}
{{- define "slurm.checkAuthType" -}}
{{- $type := printf "auth/%s" .root.Values.auth.type }}
{{- $before := regexFind "(?m)^AuthType=\\S+" (dig "data" "slurm.conf" "" .conf) | trimPrefix "AuthType=" }}
{{- if and $before (ne $before $type) }}
{{- range $pod := .pods }}
{{- $labels := $pod.metadata.labels | default dict }}
{{- if and (eq (dig "app.kubernetes.io/instance" "" $labels) $.root.Release.Name) (eq (dig "app.kubernetes.io/name" "" $labels) "slurmd") }}
{{- fail (printf "auth.type: slurmd of the Pod %s runs with %s and cannot talk to a slurmctld with %s: first set replicas: 0 in every set of compute.nodes and wait until their Pods are gone" $pod.metadata.name $before $type) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
