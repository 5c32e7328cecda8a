{{/* The settings of nodeset-controller; docs/settings.md has them all. */}}
{{- define "sunk.nodesetControllerEnv" -}}
{{- $own := .Values.nodesetController -}}
{{- $settings := dict
  "CLUSTERS" (include "sunk.clusters" . | fromJsonArray | join ",")
  "NATS_URL" (include "sunk.natsUrl" .)
  "NATS_USER" "nodeset-controller"
  "NATS_PASSWORD_FILE" "/var/run/secrets/sunk/nats-password"
  "NATS_REPLICAS" .Values.nats.replicas
  "HTTP_HOST" "0.0.0.0"
  "HTTP_PORT" 8080
  "LEASE_NAMESPACE" .Release.Namespace
  "LEASE_NAME" "sunk-nodeset-controller"
  "LEASE_TTL_S" $own.leaseSeconds
  "RESYNC_S" $own.resyncSeconds
  "REPLACE_AFTER_S" $own.replaceAfterSeconds
  "KUBE_TIMEOUT_S" $own.kubeTimeoutSeconds
  "LOCK_KEY" $own.lock.key
  "LOCK_VALUE" $own.lock.value
  "LOCK_EFFECT" $own.lock.effect
  "LOCK_LINGER_S" $own.lock.lingerSeconds
  "TRACES_ENDPOINT" $own.tracing.endpoint
  "TRACES_RATIO" $own.tracing.ratio
-}}
{{- range $name, $value := $settings }}
- {name: SUNK_NODESET_CONTROLLER_{{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}
