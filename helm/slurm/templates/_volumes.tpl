{{- /* Slurm's configuration, with what the nodeset-controller makes of the Nodes beside it, once it has. */ -}}
{{- define "slurm.confVolume" -}}
- name: conf
  projected:
    defaultMode: 0644
    sources:
      - configMap: {name: {{ include "slurm.fullname" . }}-slurm-conf}
      - configMap:
          name: {{ .Values.slurmConfig.topologyConfigMap | default (printf "%s-topology" .Values.clusterName) }}
          # With a plugin that reads it slurmctld ends without it: so the Pod waits for it.
          optional: {{ eq .Values.slurmConfig.topologyPlugin "topology/default" }}
          items: [{key: topology.conf, path: topology.conf}]
      {{- if not .Values.slurmConfig.gresConfig }}
      - configMap:
          name: {{ .Values.clusterName }}-gres
          optional: true
          items: [{key: gres.conf, path: gres.conf}]
      {{- end }}
{{- end }}

{{- /* A Secret's files and the place where their user gets copies. Arguments: root, keys (a list). */ -}}
{{- define "slurm.keysVolumes" -}}
- name: secret
  secret:
    secretName: {{ include "slurm.keysSecret" .root }}
    defaultMode: 0400
    items:
      {{- range .keys }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
- {name: keys, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
# Read where it is, so that a change of it reaches who runs. A Secret of somebody's own may have one key only.
- name: jwks
  secret: {secretName: {{ include "slurm.keysSecret" .root }}, optional: true, defaultMode: 0400, items: [{key: slurm.jwks, path: slurm.jwks}]}
{{- end }}

{{- /* The set of keys of auth/slurm; where there is none, the one key. */ -}}
{{- define "slurm.keysEnv" -}}
- {name: SLURM_SACK_JWKS, value: /run/slurm-jwks/slurm.jwks}
- {name: SLURM_SACK_KEY, value: /run/slurm-keys/slurm.key}
{{- end }}

{{- /*
Copies keys to where they belong to SlurmUser alone, which Slurm insists on and a Secret cannot give, and adds the
accounts of the values to those of the image. Arguments: root, values, files, state (a folder to be made for SlurmUser
alone: a volume's own folder belongs to its group too, which slurmctld calls a vulnerability).
*/ -}}
{{- define "slurm.keysContainer" -}}
- name: keys
  {{- include "slurm.slurmImage" . | nindent 2 }}
  args:
    - bash
    - -ec
    - |
      {{- with .state }}
      install -d -m 700 {{ . }}
      {{- end }}
      install -m 600 -t /run/slurm-keys {{ .files }}
      for file in passwd group; do
          { cat "/etc/$file"; grep -v '^$' "/users/$file" || true; } | awk -F: '!seen[$1]++' >"/accounts/$file"
      done
  {{- include "slurm.restricted" . | nindent 2 }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    - {name: secret, mountPath: /secret, readOnly: true}
    - {name: keys, mountPath: /run/slurm-keys}
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
