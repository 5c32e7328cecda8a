{{/* The settings of nodeset-controller; docs/settings.md has them all. */}}
{{- define "sunk.nodesetControllerEnv" -}}
{{- $own := .Values.nodesetController -}}
{{- $permitted := list -}}
{{- $conditions := list -}}
{{- $reasons := list -}}
{{- range $cluster := .Values.clusters -}}
{{- if .nodePermissions }}{{ $permitted = append $permitted .name }}{{ end -}}
{{- with dig "reboot" "condition" "" . }}{{ $conditions = append $conditions (printf "%s=%s" $cluster.name .) }}{{ end -}}
{{- with dig "reboot" "reason" "" . }}{{ $reasons = append $reasons (printf "%s=%s" $cluster.name .) }}{{ end -}}
{{- end -}}
{{- $settings := dict
  "CLUSTERS" (include "sunk.clusters" . | fromJsonArray | join ",")
  "NATS_URL" (include "sunk.natsUrl" .)
  "NATS_USER" "nodeset-controller"
  "NATS_PASSWORD_FILE" "/var/run/secrets/sunk/nats-password"
  "NATS_CA_FILE" (ternary "/var/run/secrets/nats-ca/ca.crt" "" (ne (include "sunk.tlsSecret" .) ""))
  "NATS_CERTIFICATE_FILE" (ternary "/var/run/secrets/nats-ca/tls.crt" "" (and .Values.nats.enabled (ne (include "sunk.tlsSecret" .) "")))
  "NATS_REPLICAS" (ternary 1 .Values.nats.replicas (eq (include "sunk.natsMode" .) "growing"))
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
  "LOCK_DRY_RUN" $own.lock.dryRun
  "LOCK_CLEAR_S" $own.lock.clearSeconds
  "LOCK_EXEMPT_NAMESPACES" (join "," $own.lock.exemptNamespaces)
  "LOCK_EXEMPT_PRIORITY_CLASSES" (join "," $own.lock.exemptPriorityClasses)
  "LOCK_EXEMPT_DAEMONSETS" $own.lock.exemptDaemonSets
  "LOCK_DELETE_AFTER_S" $own.lock.deleteAfterSeconds
  "SLURM_STALE_S" $own.slurm.staleSeconds
  "SLURM_UNKNOWN_S" $own.slurm.unknownSeconds
  "TOPOLOGY" (include "sunk.topologyKind" .)
  "TOPOLOGY_LABELS" (ternary "" (include "sunk.topologyLabels" . | fromJsonArray | join ",") (eq (include "sunk.topologyKind" .) "none"))
  "TOPOLOGY_BLOCK_LABEL" (ternary $own.topology.blockLabel "" (eq (include "sunk.topologyKind" .) "both"))
  "TOPOLOGY_BLOCK_SIZES" (join "," $own.topology.blockSizes)
  "GRES" (join "," $own.gres.resources)
  "GRES_TYPE_LABEL" $own.gres.typeLabel
  "GPU_RESOURCES" (join "," $own.gres.gpuResources)
  "GPU_WAIT_S" $own.gres.waitSeconds
  "NODE_PERMISSIONS" (join "," $permitted)
  "REBOOT_CONDITION" $own.reboot.condition
  "REBOOT_REASON" $own.reboot.reason
  "REBOOT_CONDITIONS" (join "," $conditions)
  "REBOOT_REASONS" (join "," $reasons)
  "TRACES_ENDPOINT" $own.tracing.endpoint
  "TRACES_RATIO" $own.tracing.ratio
-}}
{{- range $name, $value := $settings }}
- {name: SUNK_NODESET_CONTROLLER_{{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}
