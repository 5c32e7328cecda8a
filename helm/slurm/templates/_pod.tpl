{{- /* An image's reference. Arguments: root, image (of the component, may lack parts), default, name (last part of a service's). */ -}}
{{- define "slurm.imageRef" -}}
{{- $image := merge (deepCopy (.image | default dict)) .default -}}
{{- $registry := .root.Values.global.imageRegistry | default $image.registry -}}
{{- $repository := $image.repository -}}
{{- if and .name (not (dig "repository" "" (.image | default dict))) -}}
{{- $repository = printf "%s/%s" $repository .name -}}
{{- end -}}
{{- $tag := $image.tag | default .root.Chart.AppVersion -}}
{{- with $registry }}{{ . }}/{{ end }}{{ $repository }}{{ if hasPrefix "sha256:" $tag }}@{{ else }}:{{ end }}{{ $tag }}
{{- end }}

{{- /* The two lines of a container. Arguments as of slurm.imageRef. */ -}}
{{- define "slurm.image" -}}
image: {{ include "slurm.imageRef" . }}
imagePullPolicy: {{ dig "pullPolicy" .default.pullPolicy (.image | default dict) }}
{{- end }}

{{- /* One of Slurm's daemons. Arguments: root, values. */ -}}
{{- define "slurm.slurmImage" -}}
{{ include "slurm.image" (dict "root" .root "image" .values.image "default" (omit .root.Values.slurmImage "slurmUid") "name" "") }}
{{- end }}

{{- /* One of the services. Arguments: root, values, name. */ -}}
{{- define "slurm.serviceImage" -}}
{{ include "slurm.image" (dict "root" .root "image" .values.image "default" .root.Values.serviceImage "name" .name) }}
{{- end }}

{{- /* A component's key, else podDefaults'. Arguments: root, values, key. The answer is JSON. */ -}}
{{- define "slurm.podValue" -}}
{{- if hasKey .values .key }}{{ index .values .key | toJson }}{{ else }}{{ index .root.Values.podDefaults .key | toJson }}{{ end }}
{{- end }}

{{- /* Annotations and labels of a Pod. Arguments: root, values, name, component, annotations (a dict). */ -}}
{{- define "slurm.podMetadata" -}}
labels:
  {{- include "slurm.podLabels" . | nindent 2 }}
  {{- with merge (include "slurm.podValue" (dict "root" .root "values" .values "key" "podLabels") | fromJson) (.root.Values.commonLabels | default dict) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := merge (include "slurm.podValue" (dict "root" .root "values" .values "key" "podAnnotations") | fromJson) (.annotations | default dict) }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Where a Pod of ours may run, and what it is worth. Arguments: root, values, name, apartFrom (the name of Pods on whose Nodes it must not be; empty: none). */ -}}
{{- define "slurm.podPlacement" -}}
{{- $root := .root }}
enableServiceLinks: false
{{- include "slurm.pullSecrets" $root }}
{{- $class := include "slurm.podValue" (dict "root" $root "values" .values "key" "priorityClassName") | trimAll "\"" }}
{{- with $class }}
priorityClassName: {{ . }}
{{- end }}
{{- with include "slurm.podValue" (dict "root" $root "values" .values "key" "nodeSelector") | fromJson }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
tolerations:
  - {key: {{ $root.Values.sunk.lockKey }}, operator: Exists}
  {{- with include "slurm.podValue" (dict "root" $root "values" .values "key" "tolerations") | fromJsonArray }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $affinity := include "slurm.podValue" (dict "root" $root "values" .values "key" "affinity") | fromJson }}
{{- if $affinity }}
{{- if and .apartFrom (not (hasKey $affinity "podAntiAffinity")) }}
{{- $_ := set $affinity "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list (include "slurm.sameNode" (dict "root" $root "name" .apartFrom) | fromYaml))) }}
{{- end }}
affinity:
  {{- toYaml $affinity | nindent 2 }}
{{- else }}
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        preference: {matchExpressions: [{key: sunk.coreweave.com/nodeset, operator: DoesNotExist}]}
  podAntiAffinity:
    {{- if .apartFrom }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - {{- include "slurm.sameNode" (dict "root" $root "name" .apartFrom) | nindent 8 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 50
        podAffinityTerm:
          {{- include "slurm.sameNode" (dict "root" $root "name" .name) | nindent 10 }}
    {{- end }}
{{- end }}
{{- include "slurm.topologySpread" . }}
{{- end }}

{{- /* Secrets of images, as the lines of a Pod. Names, or as Kubernetes has them. Takes the root. */ -}}
{{- define "slurm.pullSecrets" -}}
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ kindIs "map" . | ternary . (dict "name" .) | dig "name" "" | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* How a component's Pods are spread. A constraint that selects no Pods counts those of the component. Arguments: root, values, name. */ -}}
{{- define "slurm.topologySpread" -}}
{{- $constraints := list }}
{{- range include "slurm.podValue" (dict "root" .root "values" .values "key" "topologySpreadConstraints") | fromJsonArray }}
{{- if not (hasKey . "labelSelector") }}{{ $_ := set . "labelSelector" (dict "matchLabels" (include "slurm.selector" $ | fromYaml)) }}{{ end }}
{{- $constraints = append $constraints . }}
{{- end }}
{{- with $constraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The Nodes with Pods of a name: a term of podAntiAffinity. Arguments: root, name. */ -}}
{{- define "slurm.sameNode" -}}
topologyKey: kubernetes.io/hostname
labelSelector: {matchLabels: {app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/instance: {{ .root.Release.Name | quote }}}}
{{- end }}

{{- /* extraEnv, as items. Arguments: root, values. */ -}}
{{- define "slurm.extraEnv" -}}
{{- with include "slurm.podValue" (dict "root" .root "values" .values "key" "extraEnv") | fromJsonArray }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "slurm.extraVolumes" -}}
{{- with include "slurm.podValue" (dict "root" .root "values" .values "key" "extraVolumes") | fromJsonArray }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "slurm.extraVolumeMounts" -}}
{{- with include "slurm.podValue" (dict "root" .root "values" .values "key" "extraVolumeMounts") | fromJsonArray }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Of a container that needs nothing: Kubernetes' restricted standard. */ -}}
{{- define "slurm.restricted" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* Of a Pod that runs as *uid*. Arguments: uid, group (true: volumes are the group's). */ -}}
{{- define "slurm.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ int64 .uid }}
  runAsGroup: {{ int64 .uid }}
  fsGroup: {{ int64 .uid }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* A budget where several are there; of one alone it would only hold up drains. Arguments: of the Pod, and object. */ -}}
{{- define "slurm.pdb" -}}
{{- if gt (int .values.replicas) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "slurm.fullname" .root }}-{{ .object }}
  labels:
    {{- include "slurm.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "slurm.selector" . | nindent 6 }}
{{- end }}
{{- end }}
