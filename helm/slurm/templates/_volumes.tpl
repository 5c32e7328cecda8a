{{- /* Slurm's configuration, with what the nodeset-controller makes of the Nodes beside it, once it has. */ -}}
{{- define "slurm.confVolume" -}}
- name: conf
  projected:
    defaultMode: 0644
    sources:
      - configMap: {name: {{ include "slurm.fullname" . }}-slurm-conf}
      {{- $topology := include "slurm.topology" . | fromJson }}
      {{- if ne $topology.file "none" }}
      - configMap:
          name: {{ .Values.slurmConfig.topologyConfigMap | default (printf "%s-topology" .Values.clusterName) }}
          # With a plugin that reads it slurmctld ends without it: so the Pod waits for it.
          optional: {{ eq $topology.plugin "topology/default" }}
          items: [{key: {{ $topology.file }}, path: {{ $topology.file }}}]
      {{- end }}
      {{- if not .Values.slurmConfig.gresConfig }}
      - configMap:
          name: {{ .Values.clusterName }}-gres
          optional: true
          items: [{key: gres.conf, path: gres.conf}]
      {{- end }}
{{- end }}

{{- /* A Secret's files and the place where their user gets copies; slurm.key is for auth/slurm alone. Arguments: root, keys (a list). */ -}}
{{- define "slurm.keysVolumes" -}}
{{- $keys := .keys }}
{{- if include "slurm.hasMunge" .root }}{{ $keys = without .keys "slurm.key" }}{{ end }}
{{- if $keys }}
- name: secret
  secret:
    secretName: {{ include "slurm.keysSecret" .root }}
    defaultMode: 0400
    items:
      {{- range $keys }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
- {name: keys, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
{{- end }}
{{- if include "slurm.hasMunge" .root }}
{{ include "slurm.mungeVolumes" . | trim }}
{{- else }}
# Read where it is, so that a change of it reaches who runs. A Secret of somebody's own may have one key only.
- name: jwks
  secret: {secretName: {{ include "slurm.keysSecret" .root }}, optional: true, defaultMode: 0400, items: [{key: slurm.jwks, path: slurm.jwks}]}
{{- end }}
{{- end }}

{{- /* The set of keys of auth/slurm; where there is none, the one key. Slurm takes auth/munge where it is told of neither. Arguments: the root. */ -}}
{{- define "slurm.keysEnv" -}}
{{- if include "slurm.hasMunge" . }}
- {name: SUNK_AUTH, value: munge}
{{- else }}
- {name: SLURM_SACK_JWKS, value: /run/slurm-jwks/slurm.jwks}
- {name: SLURM_SACK_KEY, value: /run/slurm-keys/slurm.key}
{{- end }}
{{- end }}

{{- /* What signs and checks for a container of Slurm's. Arguments: root, files (whether it has files of keys of its own). */ -}}
{{- define "slurm.keysMounts" -}}
{{- if or .files (not (include "slurm.hasMunge" .root)) }}
- {name: keys, mountPath: /run/slurm-keys}
{{- end }}
{{- if include "slurm.hasMunge" .root }}
{{ include "slurm.mungeMount" . | trim }}
{{- else }}
- {name: jwks, mountPath: /run/slurm-jwks, readOnly: true}
{{- end }}
{{- end }}

{{- /*
Copies keys to where they belong to SlurmUser alone, which Slurm insists on and a Secret cannot give, and adds the
accounts of the values to those of the image. Arguments: root, values, files (empty: accounts only), state (a folder to be made for SlurmUser
alone: a volume's own folder belongs to its group too, which slurmctld calls a vulnerability).
*/ -}}
{{- define "slurm.keysContainer" -}}
{{- $files := compact (splitList " " .files) }}
{{- if include "slurm.hasMunge" .root }}{{ $files = without $files "/secret/slurm.key" }}{{ end }}
- name: {{ ternary "keys" "accounts" (ne .files "") }}
  {{- include "slurm.slurmImage" . | nindent 2 }}
  args:
    - bash
    - -ec
    - |
      {{- with .state }}
      install -d -m 700 {{ . }}
      {{- end }}
      {{- with $files }}
      install -m 600 -t /run/slurm-keys {{ join " " . }}
      {{- end }}
      for file in passwd group; do
          { cat "/etc/$file"; grep -v '^$' "/users/$file" || true; } | awk -F: '!seen[$1]++' >"/accounts/$file"
      done
  {{- include "slurm.restricted" . | nindent 2 }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    {{- if $files }}
    - {name: secret, mountPath: /secret, readOnly: true}
    - {name: keys, mountPath: /run/slurm-keys}
    {{- end }}
    - {name: users, mountPath: /users, readOnly: true}
    - {name: accounts, mountPath: /accounts}
    {{- with .state }}
    - {name: state, mountPath: {{ dir . }}}
    {{- end }}
{{- end }}

{{- /* What a Pod that runs scripts as root mounts. Arguments: root. */ -}}
{{- define "slurm.scriptMounts" -}}
- {name: scripts, mountPath: /etc/sunk/scripts, readOnly: true}
- {name: users, mountPath: /etc/sunk/users, readOnly: true}
- {name: services, mountPath: /etc/sunk/services, readOnly: true}
{{- end }}

{{- /* Arguments: root, services (name of the ConfigMap). */ -}}
{{- define "slurm.scriptVolumes" -}}
- {name: scripts, configMap: {name: {{ include "slurm.fullname" .root }}-scripts, defaultMode: 0755}}
- {name: users, configMap: {name: {{ include "slurm.fullname" .root }}-users}}
- {name: services, configMap: {name: {{ .services }}, optional: true}}
{{- end }}
