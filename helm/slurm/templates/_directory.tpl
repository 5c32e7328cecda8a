{{- /*
A directory service's users, by SSSD in a container beside the one that is to know them: its sockets are in a volume of
the Pod, where libnss_sss of the image looks. All of it is empty without `directory`.
*/ -}}

{{- /* Not empty if there is one. */ -}}
{{- define "slurm.hasDirectory" -}}
{{- if or .Values.directory.sssdConfig .Values.directory.existingSecret }}true{{ end }}
{{- end }}

{{- define "slurm.directorySecret" -}}
{{ .Values.directory.existingSecret | default (printf "%s-directory" (include "slurm.fullname" .)) }}
{{- end }}

{{- /* The container, as an item of initContainers: it runs before the others start, and as long as they do. Arguments: root, values (whose image it runs). */ -}}
{{- define "slurm.directoryContainer" -}}
{{- if include "slurm.hasDirectory" .root }}
- name: sssd
  {{- include "slurm.slurmImage" . | nindent 2 }}
  restartPolicy: Always
  args: [/etc/sunk/directory-scripts/start-sssd]
  startupProbe: {exec: {command: [test, -S, /var/lib/sss/pipes/nss]}, periodSeconds: 1, failureThreshold: 60}
  # root, whose files SSSD's are; it starts helpers and ends them.
  securityContext:
    runAsNonRoot: false
    runAsUser: 0
    runAsGroup: 0
    allowPrivilegeEscalation: false
    capabilities: {drop: [ALL], add: [CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID]}
  resources:
    {{- toYaml .root.Values.directory.resources | nindent 4 }}
  volumeMounts:
    - {name: directory-scripts, mountPath: /etc/sunk/directory-scripts, readOnly: true}
    - {name: directory, mountPath: /etc/sunk/directory, readOnly: true}
    - {name: sss, mountPath: /var/lib/sss}
{{- end }}
{{- end }}

{{- /* For the container that is to know the users. Arguments: root. */ -}}
{{- define "slurm.directoryMount" -}}
{{- if include "slurm.hasDirectory" .root }}
- {name: sss, mountPath: /var/lib/sss, readOnly: true}
{{- end }}
{{- end }}

{{- /* Arguments: root. */ -}}
{{- define "slurm.directoryVolumes" -}}
{{- if include "slurm.hasDirectory" .root }}
- {name: directory, secret: {secretName: {{ include "slurm.directorySecret" .root }}, defaultMode: 0400}}
- name: directory-scripts
  configMap: {name: {{ include "slurm.fullname" .root }}-scripts, defaultMode: 0755, items: [{key: start-sssd, path: start-sssd}]}
- {name: sss, emptyDir: {}}
{{- end }}
{{- end }}
