{{/* nats-server's configuration. Passwords are variables of its environment; what is quoted is never one. */}}
{{- define "sunk.natsConf" -}}
server_name: $POD_NAME
listen: "0.0.0.0:4222"
http: "0.0.0.0:8222"
pid_file: "/run/nats/nats.pid"
lame_duck_grace_period: "10s"
lame_duck_duration: "30s"
jetstream {
  store_dir: "/data"
  max_file_store: {{ .Values.nats.persistence.maxFileStore }}
  sync_interval: {{ .Values.nats.persistence.syncInterval | default "always" | quote }}
}
# With the newer acknowledgement subjects nats-py's ordered consumers stop without an error.
feature_flags { js_ack_fc_v2: false }
{{- if gt (int .Values.nats.replicas) 1 }}
cluster {
  name: sunk
  listen: "0.0.0.0:6222"
  routes: [
    {{- range until (int .Values.nats.replicas) }}
    "nats-route://sunk-nats-{{ . }}.sunk-nats-headless.{{ $.Release.Namespace }}:6222"
    {{- end }}
  ]
}
{{- end }}
authorization {
  users: [
    {{- range include "sunk.natsUsers" . | fromJsonArray }}
    {
      user: {{ .name | quote }}
      password: ${{ include "sunk.natsVariable" .name }}
      {{- with .permissions }}
      permissions: {{ toRawJson . }}
      {{- end }}
    }
    {{- end }}
  ]
}
{{- end }}
