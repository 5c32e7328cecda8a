{{/* What the servers are: one, growing or three. Each has a file of its own name, so a container that restarts
     in a Pod of the former kind never takes the configuration of the next: three servers delete the streams of one. */}}
{{- define "sunk.natsMode" -}}
{{ if .Values.nats.growing }}growing{{ else if gt (int .Values.nats.replicas) 1 }}three{{ else }}one{{ end }}
{{- end }}

{{/* nats-server's configuration. Passwords are variables of its environment; what is quoted is never one.
     While the bus grows, the three servers listen where no service connects, and keep their streams apart. */}}
{{- define "sunk.natsConf" -}}
{{- $grows := eq (include "sunk.natsMode" .) "growing" -}}
server_name: $POD_NAME
listen: "0.0.0.0:{{ ternary 4223 4222 $grows }}"
http: "0.0.0.0:8222"
pid_file: "/run/nats/nats.pid"
lame_duck_grace_period: "10s"
lame_duck_duration: "30s"
{{- include "sunk.natsTlsConf" . }}
{{ include "sunk.natsJetStream" (dict "root" $ "store" (ternary "/data/cluster" "/data" $grows)) }}
{{- if gt (int .Values.nats.replicas) 1 }}
cluster {
  name: sunk
  listen: "0.0.0.0:6222"
  {{- if include "sunk.tlsSecret" . }}
  # Each server shows its certificate to the others.
  tls { {{ include "sunk.natsTlsFiles" . }}, ca_file: "/etc/nats-tls/ca.crt", timeout: 5 }
  {{- end }}
  routes: [
    {{- range until (int .Values.nats.replicas) }}
    "nats-route://sunk-nats-{{ . }}.sunk-nats-headless.{{ $.Release.Namespace }}:6222"
    {{- end }}
  ]
}
{{- end }}
{{- if and (include "sunk.hasTeams" .) (not $grows) }}
# The server of other teams comes in here, as the user teams.
leafnodes {
  listen: "0.0.0.0:7422"
  {{- if include "sunk.tlsSecret" . }}
  tls { {{ include "sunk.natsTlsFiles" . }}, timeout: 5 }
  {{- end }}
}
mappings: { "$JS.sunk.API.>": "$JS.API.>" }
{{- end }}
{{ include "sunk.natsAuthorization" . }}
{{- end }}

{{/* Configuration of the other teams' server: a leaf node of ours with an account of its own (docs/adr/0034). */}}
{{- define "sunk.teamsConf" -}}
{{- $teams := include "sunk.teams" . | fromJson -}}
server_name: $POD_NAME
listen: "0.0.0.0:4222"
http: "0.0.0.0:8222"
pid_file: "/run/nats/nats.pid"
lame_duck_grace_period: "10s"
lame_duck_duration: "30s"
{{- include "sunk.natsTlsConf" . }}
jetstream {
  store_dir: "/data"
  max_file_store: {{ $teams.persistence.maxFileStore }}
  domain: teams
}
# With the newer acknowledgement subjects nats-py's ordered consumers stop without an error.
feature_flags { js_ack_fc_v2: false }
leafnodes {
  reconnect: "1s"
  # The whole address is a variable, for it has the password in it.
  remotes: [ { url: $LINK, account: TEAMS{{ if include "sunk.tlsSecret" . }}, tls: { ca_file: "/etc/nats-tls/ca.crt", timeout: 5 }{{ end }} } ]
}
accounts {
  TEAMS {
    jetstream { max_consumers: {{ $teams.limits.consumers | int }} }
    limits { max_connections: {{ $teams.limits.connections | int }} }
    users: [
      {{- range include "sunk.teamUsers" . | fromJsonArray }}
      {
        user: {{ .name | quote }}
        password: ${{ include "sunk.natsVariable" .name }}
        permissions: {{ toRawJson .permissions }}
      }
      {{- end }}
    ]
  }
}
{{- end }}

{{/* Configuration of the one server, which goes on with its streams while the three get them. */}}
{{- define "sunk.natsAloneConf" -}}
server_name: $POD_NAME
listen: "0.0.0.0:4224"
{{- include "sunk.natsTlsConf" . }}
{{ include "sunk.natsJetStream" (dict "root" $ "store" "/data") }}
{{ include "sunk.natsAuthorization" . }}
{{- end }}

{{- define "sunk.natsTlsFiles" -}}
cert_file: "/etc/nats-tls/tls.crt", key_file: "/etc/nats-tls/tls.key"
{{- end }}

{{/* TLS for clients; nothing without a certificate. */}}
{{- define "sunk.natsTlsConf" -}}
{{- $tls := include "sunk.natsTls" . | fromJson -}}
{{- if include "sunk.tlsSecret" . }}
tls { {{ include "sunk.natsTlsFiles" . }}, timeout: 5 }
{{- if not $tls.required }}
allow_non_tls: true
{{- end }}
{{- end }}
{{- end }}

{{/* Takes (dict "root" $ "store" FOLDER). */}}
{{- define "sunk.natsJetStream" -}}
jetstream {
  store_dir: {{ .store | quote }}
  max_file_store: {{ .root.Values.nats.persistence.maxFileStore }}
  sync_interval: {{ .root.Values.nats.persistence.syncInterval | default "always" | quote }}
}
# With the newer acknowledgement subjects nats-py's ordered consumers stop without an error.
feature_flags { js_ack_fc_v2: false }
{{- end }}

{{- define "sunk.natsAuthorization" -}}
authorization {
  users: [
    {{- range include "sunk.natsUsers" . | fromJsonArray }}
    {{- if or (not $.Values.nats.growing) (eq .name "admin") }}
    {
      user: {{ .name | quote }}
      password: ${{ include "sunk.natsVariable" .name }}
      {{- with .permissions }}
      permissions: {{ toRawJson . }}
      {{- end }}
    }
    {{- end }}
    {{- end }}
  ]
}
{{- end }}
