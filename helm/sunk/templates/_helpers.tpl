{{/* Labels of every object. Takes (dict "root" $ "component" NAME "labels" FURTHER); FURTHER go before commonLabels. */}}
{{- define "sunk.labels" -}}
{{ include "sunk.selector" . }}
app.kubernetes.io/part-of: sunk
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with merge dict (.labels | default dict) (.root.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Annotations of an object, as the lines that follow its labels. Takes a dict. */}}
{{- define "sunk.annotations" -}}
{{- with . }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Annotations of a component's Service. Takes the component's values. */}}
{{- define "sunk.serviceAnnotations" -}}
{{- include "sunk.annotations" (dig "service" "annotations" dict .) }}
{{- end }}

{{/* Annotations of a component's ServiceAccount. Takes (dict "root" $ "values" COMPONENT). */}}
{{- define "sunk.accountAnnotations" -}}
{{- $common := dig "serviceAccount" "annotations" dict .root.Values.podDefaults }}
{{- include "sunk.annotations" (dig "serviceAccount" "annotations" $common .values) }}
{{- end }}

{{/* What selects the Pods of a component: never changes. */}}
{{- define "sunk.selector" -}}
app.kubernetes.io/name: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- end }}

{{/* The whole name of an image. Takes (dict "root" $ "image" VALUES). */}}
{{- define "sunk.image" -}}
{{- $registry := .root.Values.global.imageRegistry | default .image.registry -}}
{{- $tag := .image.tag | default .root.Chart.AppVersion -}}
{{- with $registry }}{{ . }}/{{ end }}{{ .image.repository }}:{{ $tag }}
{{- end }}

{{/* A key of a component, or of podDefaults where the component has none, as YAML; nothing if empty.
     Takes (dict "root" $ "values" COMPONENT "key" NAME). */}}
{{- define "sunk.podValue" -}}
{{- $value := get .root.Values.podDefaults .key -}}
{{- if hasKey .values .key }}{{ $value = get .values .key }}{{ end -}}
{{- with $value }}{{ toYaml . }}{{ end -}}
{{- end }}

{{/* The part of a Pod's spec that is the same for all. Takes (dict "root" $ "values" COMPONENT "component" NAME). */}}
{{- define "sunk.podSpec" -}}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.global.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ kindIs "map" . | ternary . (dict "name" .) | dig "name" "" | quote }}
{{- end }}
{{- end }}
{{- with include "sunk.podValue" (merge (dict "key" "priorityClassName") .) }}
priorityClassName: {{ . }}
{{- end }}
{{- with include "sunk.podValue" (merge (dict "key" "nodeSelector") .) }}
nodeSelector:
  {{- . | nindent 2 }}
{{- end }}
tolerations:
- key: {{ .root.Values.nodesetController.lock.key }}
  operator: Exists
{{- with include "sunk.podValue" (merge (dict "key" "tolerations") .) }}
{{ . }}
{{- end }}
affinity:
  {{- include "sunk.podValue" (merge (dict "key" "affinity") .) | default (include "sunk.affinity" .) | nindent 2 }}
{{- with include "sunk.podValue" (merge (dict "key" "topologySpreadConstraints") .) }}
topologySpreadConstraints:
{{- range . | fromYamlArray }}
{{- if not (hasKey . "labelSelector") }}{{ $_ := set . "labelSelector" (dict "matchLabels" (include "sunk.selector" $ | fromYaml)) }}{{ end }}
- {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "sunk.affinity" -}}
nodeAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    preference:
      matchExpressions:
      - {key: sunk.coreweave.com/nodeset, operator: DoesNotExist}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "sunk.selector" . | nindent 10 }}
{{- end }}

{{/* Labels and annotations of a component's Pods. Takes what sunk.podSpec takes, and "checksum". */}}
{{- define "sunk.podMetadata" -}}
labels:
  {{- include "sunk.selector" . | nindent 2 }}
  app.kubernetes.io/part-of: sunk
  {{- with merge (include "sunk.podValue" (merge (dict "key" "podLabels") .) | fromYaml) (.root.Values.commonLabels | default dict) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := include "sunk.podValue" (merge (dict "key" "podAnnotations") .) }}
{{- if or .checksum .scraped $annotations }}
annotations:
  {{- if .scraped }}
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ .scraped | quote }}
  prometheus.io/path: /metrics
  {{- end }}
  {{- with .checksum }}
  checksum/config: {{ . }}
  {{- end }}
  {{- with $annotations }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* What every container has: the least. */}}
{{- define "sunk.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Names of the Slurm clusters, as a JSON list. */}}
{{- define "sunk.clusters" -}}
{{- $names := list -}}
{{- range .Values.clusters }}{{ $names = append $names .name }}{{ end -}}
{{- toJson $names -}}
{{- end }}

{{/* Name of the Secret with the passwords of the bus' users. */}}
{{- define "sunk.natsSecret" -}}
{{ .Values.nats.existingSecret | default "sunk-nats-users" }}
{{- end }}

{{/* Address of the bus. */}}
{{- define "sunk.natsUrl" -}}
{{- if .Values.nats.enabled -}}
nats://sunk-nats.{{ .Release.Namespace }}:4222
{{- else -}}
{{ required "nats.url: name the address of the bus, or set nats.enabled" .Values.nats.url }}
{{- end -}}
{{- end }}

{{/* nats.tls with its defaults, as JSON. */}}
{{- define "sunk.natsTls" -}}
{{- mergeOverwrite (dict "existingSecret" "" "generate" false "names" list "required" true) (.Values.nats.tls | default dict | deepCopy) | toJson -}}
{{- end }}

{{/* Name of the Secret with NATS' certificate; empty without TLS. */}}
{{- define "sunk.tlsSecret" -}}
{{- $tls := include "sunk.natsTls" . | fromJson -}}
{{- $tls.existingSecret | default (ternary "sunk-nats-tls" "" $tls.generate) -}}
{{- end }}

{{/* The volume of a NATS server with its certificate. A Pod waits for one that is not made yet. */}}
{{- define "sunk.natsTlsVolume" -}}
{{- $tls := include "sunk.natsTls" . | fromJson -}}
{{- $secret := dict "secretName" (include "sunk.tlsSecret" .) "defaultMode" 288 -}}
{{- if $tls.generate -}}
{{- $items := list -}}
{{- range list "tls.crt" "tls.key" "ca.crt" }}{{ $items = append $items (dict "key" . "path" .) }}{{ end -}}
{{- $_ := set $secret "items" $items -}}
{{- end -}}
{{- dict "name" "tls" "secret" $secret | toJson -}}
{{- end }}

{{/* Has nats-server read a certificate that was renewed. Needs the volumes run and tls, and shareProcessNamespace. */}}
{{- define "sunk.natsReloader" -}}
{{- $own := .Values.nodesetController }}
- name: reloader
  image: {{ include "sunk.image" (dict "root" . "image" $own.image) }}
  imagePullPolicy: {{ $own.image.pullPolicy }}
  command:
  - python3
  - -c
  - |
    {{- .Files.Get "files/reload.py" | nindent 4 }}
  - /run/nats/nats.pid
  - /etc/nats-tls
  resources:
    requests: {cpu: 5m, memory: 16Mi}
    limits: {memory: 64Mi}
  securityContext:
    {{- include "sunk.containerSecurity" . | nindent 4 }}
  volumeMounts:
  - {name: run, mountPath: /run/nats, readOnly: true}
  - {name: tls, mountPath: /etc/nats-tls, readOnly: true}
{{- end }}

{{/* Whether other teams have a server of their own (docs/adr/0034). */}}
{{- define "sunk.hasTeams" -}}
{{- if and .Values.nats.enabled .Values.nats.subscribers }}true{{ end -}}
{{- end }}

{{/* The users of the bus with their permissions, as a JSON list: files/nats-users.json for the clusters of the values.
     A user with <cluster> in its name is there once for each cluster; another has each line with it once for each.
     The link of the other teams' server is there if there is one. */}}
{{- define "sunk.natsUsers" -}}
{{- $clusters := include "sunk.clusters" . | fromJsonArray -}}
{{- $users := list -}}
{{- range $user := (.Files.Get "files/nats-users.json" | fromJson).users -}}
  {{- $groups := list $clusters -}}
  {{- /* A Secret of the user's own need not have its password while it is not there. */ -}}
  {{- if and (eq $user.name "view") (not ($.Values.view).enabled) }}{{ $groups = list }}{{ end -}}
  {{- if contains "<cluster>" $user.name -}}
    {{- $groups = list -}}
    {{- range $clusters }}{{ $groups = append $groups (list .) }}{{ end -}}
  {{- end -}}
  {{- if or (ne $user.name "teams") (include "sunk.hasTeams" $) -}}
  {{- range $group := $groups -}}
    {{- $made := dict "name" ($user.name | replace "<cluster>" (first $group)) -}}
    {{- if $user.permissions -}}
      {{- $_ := set $made "permissions" (include "sunk.natsPermissions" (dict "permissions" $user.permissions "clusters" $group) | fromJson) -}}
    {{- end -}}
    {{- $users = append $users $made -}}
  {{- end -}}
  {{- end -}}
{{- end -}}
{{- toJson $users -}}
{{- end }}

{{/* The users of the other teams' server, as a JSON list: a team has what `subscriber` has, under its own name. */}}
{{- define "sunk.teamUsers" -}}
{{- $clusters := include "sunk.clusters" . | fromJsonArray -}}
{{- $users := list -}}
{{- if include "sunk.hasTeams" . -}}
{{- range $user := (.Files.Get "files/nats-users.json" | fromJson).teams -}}
  {{- $permissions := include "sunk.natsPermissions" (dict "permissions" $user.permissions "clusters" $clusters) | fromJson -}}
  {{- $users = append $users (dict "name" $user.name "permissions" $permissions) -}}
  {{- if eq $user.name "subscriber" -}}
    {{- range $.Values.nats.subscribers -}}
      {{- $own := printf "subscriber-%s" . -}}
      {{- $theirs := toJson $permissions | replace ".subscriber." (printf ".%s." $own) | replace ".subscriber\"" (printf ".%s\"" $own) | fromJson -}}
      {{- $users = append $users (dict "name" $own "permissions" $theirs) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $users -}}
{{- end }}

{{/* nats.teams with its defaults, as JSON: `helm upgrade --reuse-values` has the values of the release as it was. */}}
{{- define "sunk.teams" -}}
{{- $persistence := dict "size" "10Gi" "storageClassName" "" "maxFileStore" "8GiB" -}}
{{- $limits := dict "connections" 100 "consumers" 100 -}}
{{- $resources := dict "requests" (dict "cpu" "100m" "memory" "128Mi") "limits" (dict "memory" "1Gi") -}}
{{- mergeOverwrite (dict "persistence" $persistence "limits" $limits "resources" $resources) (.Values.nats.teams | default dict | deepCopy) | toJson -}}
{{- end }}

{{/* Permissions with each line that names <cluster> once for each cluster. The second form is how a NATS subject escapes it. */}}
{{- define "sunk.natsPermissions" -}}
{{- $clusters := .clusters -}}
{{- $made := dict -}}
{{- range $verb, $rights := .permissions -}}
  {{- $subjects := list -}}
  {{- range $subject := $rights.allow -}}
    {{- range $clusters -}}
      {{- $subjects = append $subjects ($subject | replace "<cluster>" . | replace "=3Ccluster=3E" .) -}}
    {{- end -}}
  {{- end -}}
  {{- $_ := set $made $verb (dict "allow" ($subjects | uniq)) -}}
{{- end -}}
{{- toJson $made -}}
{{- end }}

{{/* The environment variable of NATS that holds a user's password. */}}
{{- define "sunk.natsVariable" -}}
PASSWORD_{{ . | upper | replace "-" "_" }}
{{- end }}

{{/* Whom no policy keeps from writing what our services write: groups of admissionPolicies.repairGroups. Nothing if there are none. */}}
{{- define "sunk.mayRepair" -}}
{{- with .Values.admissionPolicies.repairGroups -}}
- name: repairs-nothing
  expression: >-
    !has(request.userInfo.groups) || !request.userInfo.groups.exists(group, group in {{ toRawJson . }})
{{- end -}}
{{- end }}

{{/* admissionPolicies.lockBearers as JSON. `helm upgrade --reuse-values` has the values of the release as it was: one of before these keys has none of them. */}}
{{- define "sunk.lockBearers" -}}
{{- $given := .Values.admissionPolicies.lockBearers | default dict -}}
{{- dict "enabled" (dig "enabled" true $given) "action" (dig "action" "Warn" $given) "namespaces" (dig "namespaces" (list "kube-system") $given) "serviceAccounts" (dig "serviceAccounts" list $given) | toJson -}}
{{- end }}

{{/* Labels of Nodes that a topology is made of: a JSON list. */}}
{{- define "sunk.topologyLabels" -}}
{{- $topology := .Values.nodesetController.topology -}}
{{- if or $topology.labels (not (has $topology.kind (list "both" "auto"))) -}}
{{ toJson $topology.labels }}
{{- else -}}
{{ list "ib.coreweave.cloud/fabric" "ib.coreweave.cloud/superpod" "ib.coreweave.cloud/leafgroup" | toJson }}
{{- end -}}
{{- end }}

{{/* What is generated: with auto both, if a Node has one of the labels. Without them nothing of this chart changes. */}}
{{- define "sunk.topologyKind" -}}
{{- $topology := .Values.nodesetController.topology -}}
{{- if ne $topology.kind "auto" -}}
{{ $topology.kind }}
{{- else -}}
{{- $nodes := (lookup "v1" "Node" "" "" | default dict).items | default list -}}
{{- $there := lookup "apps/v1" "Deployment" .Release.Namespace "sunk-nodeset-controller" | default dict -}}
{{ include "sunk.topologyOf" (dict "root" . "nodes" $nodes "before" $there) }}
{{- end -}}
{{- end }}

{{/* What was generated before goes on: slurmctld needs it while its nodes have places there, with or without Nodes. Arguments: root, nodes (Kubernetes Nodes), before (the Deployment that is there). */}}
{{- define "sunk.topologyOf" -}}
{{- $labels := include "sunk.topologyLabels" .root | fromJsonArray -}}
{{- with .root.Values.nodesetController.topology.blockLabel }}{{ $labels = append $labels . }}{{ end -}}
{{- $found := "none" -}}
{{- range dig "spec" "template" "spec" "containers" list .before }}
{{- range dig "env" list . }}{{ if and (eq .name "SUNK_NODESET_CONTROLLER_TOPOLOGY") (eq (dig "value" "" .) "both") }}{{ $found = "both" }}{{ end }}{{ end }}
{{- end -}}
{{- range .nodes }}{{ $has := .metadata.labels | default dict }}{{ range $labels }}{{ if get $has . }}{{ $found = "both" }}{{ end }}{{ end }}{{ end -}}
{{ $found }}
{{- end }}

{{/* The namespaces with NodeSets in which no helm/slurm release gives nodeset-controller its rights, as JSON. */}}
{{- define "sunk.namespacesToBind" -}}
{{- $missing := list -}}
{{- $namespaces := list -}}
{{- /* A lookup of a kind that is not defined fails. */ -}}
{{- if .Capabilities.APIVersions.Has "sunk.coreweave.com/v1alpha1/NodeSet" -}}
{{- range .Values.clusters }}{{ $namespaces = append $namespaces .namespace }}{{ end -}}
{{- end -}}
{{- range $namespace := $namespaces | uniq -}}
{{- $isBound := false -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "RoleBinding" $namespace "" | default dict).items -}}
{{- if and (eq .roleRef.name "sunk-nodeset-controller-namespace") (ne .metadata.name "sunk-nodeset-controller-upgrade") }}{{ $isBound = true }}{{ end -}}
{{- end -}}
{{- if and (not $isBound) (lookup "sunk.coreweave.com/v1alpha1" "NodeSet" $namespace "" | default dict).items }}{{ $missing = append $missing $namespace }}{{ end -}}
{{- end -}}
{{- toJson $missing -}}
{{- end }}
