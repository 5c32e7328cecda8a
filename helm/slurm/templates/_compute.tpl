{{- /*
The sets of nodes that are enabled, as a JSON list of {name, values}: `base`, the definitions that a set names, then
the set's own keys, each layer over the one before. Maps are merged key by key, lists of names are united, lists of
objects are merged by `name`, anything else is replaced.
*/ -}}
{{- define "slurm.sets" -}}
{{- $all := .Values.compute.nodes -}}
{{- $sets := list -}}
{{- range $name, $own := $all -}}
{{- $merged := dict -}}
{{- $layers := ternary (list) (list "base") (or (eq $name "base") (not (hasKey $all "base"))) -}}
{{- range $layer := concat $layers ($own.definitions | default list) -}}
{{- $merged = (include "slurm.over" (list (omit (index $all $layer | default dict) "definitions" "enabled") $merged) | fromJson).value -}}
{{- end -}}
{{- $merged = (include "slurm.over" (list (omit $own "definitions" "enabled") $merged) | fromJson).value -}}
{{- if and (ne $name "base") (dig "enabled" true $own) -}}
{{- $sets = append $sets (dict "name" $name "values" $merged) -}}
{{- end -}}
{{- end -}}
{{ toJson $sets }}
{{- end }}

{{- /* One value over another, as JSON {value}. Arguments: a list of the upper and the lower. */ -}}
{{- define "slurm.over" -}}
{{- $upper := index . 0 -}}{{- $lower := index . 1 -}}
{{- if and (kindIs "map" $upper) (kindIs "map" $lower) -}}
{{- $merged := deepCopy $lower -}}
{{- range $key, $value := $upper -}}
{{- $_ := set $merged $key (ternary (include "slurm.over" (list $value (index $lower $key)) | fromJson).value $value (hasKey $lower $key)) -}}
{{- end -}}
{{ toJson (dict "value" $merged) }}
{{- else if and (kindIs "slice" $upper) (kindIs "slice" $lower) -}}
{{- $merged := list -}}
{{- range $entry := $lower -}}
{{- range $above := $upper -}}
{{- if and (kindIs "map" $above) (kindIs "map" $entry) (hasKey $above "name") (eq (toString (index $above "name")) (toString (index $entry "name"))) -}}
{{- $entry = (include "slurm.over" (list $above $entry) | fromJson).value -}}
{{- end -}}
{{- end -}}
{{- $merged = append $merged $entry -}}
{{- end -}}
{{- range $above := $upper -}}
{{- $isThere := false -}}
{{- range $entry := $lower -}}
{{- if and (kindIs "map" $above) (kindIs "map" $entry) -}}
{{- if and (hasKey $above "name") (eq (toString (index $above "name")) (toString (index $entry "name"))) -}}{{- $isThere = true -}}{{- end -}}
{{- else if eq (toJson $above) (toJson $entry) -}}{{- $isThere = true -}}{{- end -}}
{{- end -}}
{{- if not $isThere -}}{{- $merged = append $merged $above -}}{{- end -}}
{{- end -}}
{{ toJson (dict "value" $merged) }}
{{- else -}}
{{ toJson (dict "value" $upper) }}
{{- end -}}
{{- end }}

{{- /* Services of values as files, each named for what it is. */ -}}
{{- define "slurm.services" -}}
{{- range $name, $service := . }}
{{ $name }}.{{ $service.type }}: |
  {{- trim $service.script | nindent 2 }}
{{- else }}
{}
{{- end }}
{{- end }}

{{- /* Limits of a set's jobs, as JSON {memlock, nofile, stack}; empty values are the container runtime's. Arguments: root, values. */ -}}
{{- define "slurm.limits" -}}
{{- $limits := dict -}}
{{- range $name, $default := .root.Values.compute.limits -}}
{{- with dig "limits" $name $default $.values }}{{ $_ := set $limits $name (toString .) }}{{ end -}}
{{- end -}}
{{ toJson $limits }}
{{- end }}

{{- /* Size of a set's /dev/shm: its own value, else half of the memory that the values name, else nothing: what the Node has for Pods. Arguments: values. */ -}}
{{- define "slurm.sharedMemory" -}}
{{- $limit := dig "resources" "limits" "memory" "" .values | toString -}}
{{- $mib := dig "slurm" "memory" 0 .values | int64 -}}
{{- if .values.sharedMemory -}}
{{ .values.sharedMemory }}
{{- else if $mib -}}
{{ div $mib 2 }}Mi
{{- else if regexMatch "^[0-9]+Mi$" $limit -}}
{{ div (trimSuffix "Mi" $limit | int64) 2 }}Mi
{{- else if regexMatch "^[0-9]+Gi$" $limit -}}
{{ mul (trimSuffix "Gi" $limit | int64) 512 }}Mi
{{- else if regexMatch "^[0-9]+Ti$" $limit -}}
{{ mul (trimSuffix "Ti" $limit | int64) 512 }}Gi
{{- end -}}
{{- end }}

{{- /* A NodeSet's updateStrategy, as JSON: its own, and the cluster's rule of which jobs are not waited for. Arguments: root, values. */ -}}
{{- define "slurm.updateStrategy" -}}
{{- $strategy := deepCopy (.values.updateStrategy | default dict) -}}
{{- $rule := .root.Values.syncer.config.syncer.nodesetUpdateJobPreemption -}}
{{- if $rule.enabled -}}
{{- $requeue := dict -}}
{{- if eq $rule.method "time" -}}{{- $requeue = dict "runningSeconds" (int $rule.runningSeconds) -}}
{{- else if eq $rule.method "partition" -}}{{- $requeue = dict "partitions" (splitList "," (nospace $rule.partitions)) -}}
{{- else -}}{{- $requeue = dict "qos" (splitList "," (nospace $rule.qos)) -}}{{- end -}}
{{- $strategy = mergeOverwrite (dict "rollingUpdate" (dict "requeue" $requeue)) $strategy -}}
{{- end -}}
{{ toJson $strategy }}
{{- end }}
