{{- /* What every object's name begins with. Slurm's own Services need room behind it. */ -}}
{{- define "slurm.fullname" -}}
{{ .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "slurm.schedulerName" -}}
{{ .Values.scheduler.name | default (printf "%s-%s" .Release.Namespace .Release.Name) }}
{{- end }}

{{- /* Whether the name that all schedulers have is this release's: the first that asks for it has it. */ -}}
{{- define "slurm.hasSchedulerAlias" -}}
{{- $taken := false }}
{{- range (lookup "apps/v1" "Deployment" "" "" | default dict).items }}
{{- $isUs := and (eq .metadata.namespace $.Release.Namespace) (eq .metadata.name (printf "%s-scheduler" (include "slurm.fullname" $))) }}
{{- if and (eq (dig "metadata" "annotations" "sunk.coreweave.com/scheduler-alias" "" .) "true") (not $isUs) }}{{ $taken = true }}{{ end }}
{{- end }}
{{- if and .Values.scheduler.alias (not $taken) (ne (include "slurm.schedulerName" .) "sunk-scheduler") }}true{{ end }}
{{- end }}

{{- /* Every name that Pods may give, with commas. */ -}}
{{- define "slurm.schedulerNames" -}}
{{ include "slurm.schedulerName" . }}{{ if include "slurm.hasSchedulerAlias" . }},sunk-scheduler{{ end }}
{{- end }}

{{- /* DNS of a Pod in which the names of Slurm's nodes resolve. */ -}}
{{- define "slurm.nodeNames" -}}
dnsConfig:
  searches: [{{ include "slurm.fullname" . }}-compute.{{ .Release.Namespace }}.svc.{{ .Values.global.clusterDomain }}]
{{- end }}

{{- /* Arguments: root, name (app.kubernetes.io/name), component. */ -}}
{{- define "slurm.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- end }}

{{- /* Of Pods: without the chart's version, so that a new chart alone restarts nothing. */ -}}
{{- define "slurm.podLabels" -}}
{{ include "slurm.selector" . }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: sunk
sunk.coreweave.com/cluster: {{ .root.Values.clusterName | quote }}
{{- end }}

{{- /* Of every object. Arguments: of slurm.podLabels, and labels (a dict: further ones, which go before commonLabels). */ -}}
{{- define "slurm.labels" -}}
{{ include "slurm.podLabels" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with merge dict (.labels | default dict) (.root.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Annotations of an object, as the lines that follow its labels. Takes a dict. */ -}}
{{- define "slurm.annotations" -}}
{{- with . }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Annotations of a component's Service. Takes the component's values. */ -}}
{{- define "slurm.serviceAnnotations" -}}
{{- include "slurm.annotations" (dig "service" "annotations" dict .) }}
{{- end }}

{{- /* Annotations of a service's ServiceAccount. Arguments: root, values (of the component). Accounts of Pods in which users work have none in common with the services. */ -}}
{{- define "slurm.accountAnnotations" -}}
{{- $common := dig "serviceAccount" "annotations" dict .root.Values.podDefaults }}
{{- include "slurm.annotations" (dig "serviceAccount" "annotations" $common .values) }}
{{- end }}

{{- define "slurm.keysSecret" -}}
{{ .Values.keys.existingSecret | default (printf "%s-keys" (include "slurm.fullname" .)) }}
{{- end }}

{{- define "slurm.placementSecret" -}}
{{ .Values.keys.placementSecret | default (printf "%s-placement-key" (include "slurm.fullname" .)) }}
{{- end }}

{{- define "slurm.sshSecret" -}}
{{ .Values.keys.sshHostKeySecret | default (printf "%s-ssh-host-key" (include "slurm.fullname" .)) }}
{{- end }}

{{- define "slurm.natsSecret" -}}
{{ .Values.nats.existingSecret | default (printf "%s-nats" (include "slurm.fullname" .)) }}
{{- end }}

{{- /* The Secret with the CA certificates of NATS; empty without TLS, and in values of an earlier version. */ -}}
{{- define "slurm.natsCaSecret" -}}
{{- dig "tls" "caSecret" "" .Values.nats | default (ternary (printf "%s-nats-ca" (include "slurm.fullname" .)) "" (ne (include "slurm.natsCa" .) "")) -}}
{{- end }}

{{- /*
ca.crt of the sunk release in base64, for who names no Secret and lets the chart read passwords there; empty where
there is none. While the sunk release is away, or is not looked at, what was copied stays.
*/ -}}
{{- define "slurm.natsCa" -}}
{{- if not (or .Values.nats.existingSecret (dig "tls" "caSecret" "" .Values.nats)) -}}
{{- $deployment := dict -}}
{{- if .Values.checks.cluster }}{{ $deployment = lookup "apps/v1" "Deployment" .Values.sunk.namespace .Values.sunk.controllerName | default dict }}{{ end -}}
{{- $own := dict "namespace" .Release.Namespace "name" (printf "%s-nats-ca" (include "slurm.fullname" .)) -}}
{{- with include "slurm.natsCaSource" (dict "deployment" $deployment "namespace" .Values.sunk.namespace "own" $own) | fromJson -}}
{{- dig "data" "ca.crt" "" (lookup "v1" "Secret" .namespace .name | default dict) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Where ca.crt is, as JSON; an empty dict where the sunk release has no TLS. Arguments: deployment (of its nodeset-controller, if it is there), namespace, own. */ -}}
{{- define "slurm.natsCaSource" -}}
{{- $found := dict -}}
{{- if not .deployment }}{{ $found = .own }}{{ end -}}
{{- range dig "spec" "template" "spec" "volumes" list .deployment -}}
{{- if eq .name "nats-ca" }}{{ $found = dict "namespace" $.namespace "name" .secret.secretName }}{{ end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{- define "slurm.natsUrl" -}}
{{ .Values.nats.url | default (printf "nats://sunk-nats.%s:4222" .Values.sunk.namespace) }}
{{- end }}

{{- define "slurm.databaseSecret" -}}
{{- if .Values.accounting.external.host -}}
{{ .Values.accounting.external.existingSecret }}
{{- else -}}
{{ .Values.mariadb.existingSecret | default (printf "%s-mariadb" (include "slurm.fullname" .)) }}
{{- end }}
{{- end }}

{{- /* `hookGateway.tls` as JSON; values of an earlier version lack some of it. */ -}}
{{- define "slurm.hooksTls" -}}
{{- mergeOverwrite (dict "existingSecret" "" "generate" false "required" true) (.Values.hookGateway.tls | default dict | deepCopy) | toJson -}}
{{- end }}

{{- /* The Secret with the gateway's certificate; empty without TLS. */ -}}
{{- define "slurm.hooksTlsSecret" -}}
{{- $tls := include "slurm.hooksTls" . | fromJson -}}
{{- $tls.existingSecret | default (ternary (printf "%s-hooks-tls" (include "slurm.fullname" .)) "" $tls.generate) -}}
{{- end }}

{{- define "slurm.hooksUrl" -}}
{{- $host := printf "%s-hook-gateway.%s.svc" (include "slurm.fullname" .) .Release.Namespace -}}
{{ if include "slurm.hooksTlsSecret" . }}https://{{ $host }}:8443{{ else }}http://{{ $host }}:8080{{ end }}
{{- end }}

{{- /* Where Pods call the gateway that do not have its CA yet; empty: nowhere. */ -}}
{{- define "slurm.hooksUrlWithoutTls" -}}
{{- if and (include "slurm.hooksTlsSecret" .) (not (include "slurm.hooksTls" . | fromJson).required) -}}
http://{{ include "slurm.fullname" . }}-hook-gateway.{{ .Release.Namespace }}.svc:8080
{{- end -}}
{{- end }}

{{- /*
The volume with the CA of the gateway's certificate. Programs of users check it too. Arguments: root, optional (true:
the Pod does not wait for one that is not made yet).
*/ -}}
{{- define "slurm.hooksCaVolume" -}}
- {name: hooks-ca, secret: {secretName: {{ include "slurm.hooksTlsSecret" .root }}{{ if .optional }}, optional: true{{ end }}, defaultMode: 0444, items: [{key: ca.crt, path: ca.crt}]}}
{{- end }}

{{- /* `rest.tls` as JSON; values of an earlier version have none. */ -}}
{{- define "slurm.restTls" -}}
{{- mergeOverwrite (dict "existingSecret" "" "generate" false "required" true) (.Values.rest.tls | default dict | deepCopy) | toJson -}}
{{- end }}

{{- /* The Secret with the certificate in front of slurmrestd; empty without TLS. */ -}}
{{- define "slurm.restTlsSecret" -}}
{{- $tls := include "slurm.restTls" . | fromJson -}}
{{- $tls.existingSecret | default (ternary (printf "%s-rest-tls" (include "slurm.fullname" .)) "" $tls.generate) -}}
{{- end }}

{{- /* Whether slurmrestd answers without TLS. */ -}}
{{- define "slurm.restWithoutTls" -}}
{{- if or (not (include "slurm.restTlsSecret" .)) (not (include "slurm.restTls" . | fromJson).required) }}true{{ end -}}
{{- end }}

{{- /* Where the services call slurmrestd: with a certificate by TLS alone, as a token of an administrator goes with each call. */ -}}
{{- define "slurm.restUrl" -}}
{{- $host := printf "%s-rest.%s.svc" (include "slurm.fullname" .) .Release.Namespace -}}
{{ if include "slurm.restTlsSecret" . }}https://{{ $host }}:6821{{ else }}http://{{ $host }}:6820{{ end }}
{{- end }}

{{- /* Which certificates the chart makes, as a JSON list of name, hosts. */ -}}
{{- define "slurm.certificates" -}}
{{- $made := list -}}
{{- range $name, $service := dict "hooks" "hook-gateway" "rest" "rest" -}}
{{- if (include (printf "slurm.%sTls" $name) $ | fromJson).generate -}}
{{- $host := printf "%s-%s.%s" (include "slurm.fullname" $) $service $.Release.Namespace -}}
{{- $made = append $made (dict "name" $name "hosts" (list $host (printf "%s.svc" $host))) -}}
{{- end -}}
{{- end -}}
{{- toJson $made -}}
{{- end }}

{{- define "slurm.isConnected" -}}
{{- /* Whether lookup sees a cluster: not so in `helm template` and client-side dry-runs. */ -}}
{{- if (lookup "v1" "Namespace" "" "kube-system") }}true{{ end }}
{{- end }}

{{- /* The namespaces of scope `namespace`, as a JSON list: from a list, or from text with commas. */ -}}
{{- define "slurm.scopeNamespaces" -}}
{{- $given := .Values.scheduler.scope.namespaces -}}
{{- if kindIs "string" $given -}}{{- $given = ternary (list) (splitList "," (nospace $given)) (eq (nospace $given) "") -}}{{- end -}}
{{- ternary $given list (eq .Values.scheduler.scope.type "namespace") | toJson -}}
{{- end }}

{{- /* Where Pods through Slurm are, as JSON; empty: everywhere. */ -}}
{{- define "slurm.podNamespaces" -}}
{{- if eq .Values.scheduler.scope.type "cluster" -}}
[]
{{- else -}}
{{ include "slurm.scopeNamespaces" . | fromJsonArray | default (list .Release.Namespace) | toJson }}
{{- end }}
{{- end }}
