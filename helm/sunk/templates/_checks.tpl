{{/* What the schema cannot say of the values; nodeset-controller includes it, which is always there. Each says key, reason and way out. */}}
{{- define "sunk.checks" -}}
{{- $names := include "sunk.clusters" . | fromJsonArray -}}
{{- if ne (len $names) (len ($names | uniq)) -}}
{{- fail (printf "clusters: %s: a name stands there twice; the name of a Slurm cluster is unique in the Kubernetes cluster" (join ", " $names)) -}}
{{- end -}}
{{- $topology := .Values.nodesetController.topology -}}
{{- if and (has $topology.kind (list "tree" "block")) (not $topology.labels) -}}
{{- fail (printf "nodesetController.topology.labels: a %s needs the labels of Nodes that it is made of" $topology.kind) -}}
{{- end -}}
{{- $lock := .Values.nodesetController.lock -}}
{{- if eq $lock.effect "NoExecute" -}}
{{- range $key, $spared := dict "dryRun" $lock.dryRun "exemptNamespaces" $lock.exemptNamespaces "deleteAfterSeconds" $lock.deleteAfterSeconds "exemptPriorityClasses" (ne (join "," $lock.exemptPriorityClasses) "system-node-critical") -}}
{{- if $spared -}}
{{- fail (printf "nodesetController.lock.%s: with effect NoExecute Kubernetes drives everybody out; set effect NoSchedule, or leave it as it is" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .Values.nats.enabled -}}
{{- $store := include "sunk.mebibytes" (.Values.nats.persistence.maxFileStore | trimSuffix "B") | int64 -}}
{{- $size := include "sunk.mebibytes" .Values.nats.persistence.size | int64 -}}
{{- /* 1 GiB of facts a cluster, 256 MiB of dead letters, and as much for states, which have no bound of their own. */ -}}
{{- $needed := add (mul 1024 (len $names)) 512 -}}
{{- if lt $store (int64 $needed) -}}
{{- fail (printf "nats.persistence.maxFileStore: %s are too little for %d Slurm clusters: at least %dMiB" .Values.nats.persistence.maxFileStore (len $names) $needed) -}}
{{- end -}}
{{- if gt $store $size -}}
{{- fail (printf "nats.persistence.maxFileStore: %s are more than the volume of %s (nats.persistence.size)" .Values.nats.persistence.maxFileStore .Values.nats.persistence.size) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* 8Gi as a number of MiB. */}}
{{- define "sunk.mebibytes" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- if hasSuffix "Ti" . }}{{ mul $number 1048576 }}{{ else if hasSuffix "Gi" . }}{{ mul $number 1024 }}{{ else }}{{ $number }}{{ end -}}
{{- end }}

{{/* What cannot be changed once the servers are there: says so before half of an upgrade is done. */}}
{{- define "sunk.natsStays" -}}
{{- $nats := .Values.nats -}}
{{- with lookup "apps/v1" "StatefulSet" .Release.Namespace "sunk-nats" -}}
{{- $way := "To change it, delete the StatefulSet sunk-nats and its PersistentVolumeClaims first: states are published anew, stored facts are lost" -}}
{{- if ne (int .spec.replicas) (int $nats.replicas) -}}
{{- fail (printf "nats.replicas: there are %d servers, whose streams do not move to %d. %s" (int .spec.replicas) (int $nats.replicas) $way) -}}
{{- end -}}
{{- $claim := (first .spec.volumeClaimTemplates).spec -}}
{{- $size := $claim.resources.requests.storage -}}
{{- if ne (include "sunk.mebibytes" $size) (include "sunk.mebibytes" $nats.persistence.size) -}}
{{- fail (printf "nats.persistence.size: the volumes have %s and cannot become %s. %s" $size $nats.persistence.size $way) -}}
{{- end -}}
{{- $class := $nats.persistence.storageClassName -}}
{{- if ne ($claim.storageClassName | default "") $class -}}
{{- fail (printf "nats.persistence.storageClassName: the volumes have %q and cannot have %q. %s" ($claim.storageClassName | default "") $class $way) -}}
{{- end -}}
{{- end -}}
{{- end }}
