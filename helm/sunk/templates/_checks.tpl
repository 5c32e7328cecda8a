{{/* What the schema cannot say of the values; nodeset-controller includes it, which is always there. Each says key, reason and way out. */}}
{{- define "sunk.checks" -}}
{{- $names := include "sunk.clusters" . | fromJsonArray -}}
{{- if ne (len $names) (len ($names | uniq)) -}}
{{- fail (printf "clusters: %s: a name appears twice; each Slurm cluster needs a unique name in the Kubernetes cluster" (join ", " $names)) -}}
{{- end -}}
{{- range $label, $_ := .Values.commonLabels -}}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|component|part-of|managed-by|version)|helm\\.sh/chart|(.*\\.)?sunk\\.coreweave\\.com/.*)$" $label -}}
{{- fail (printf "commonLabels: the chart sets %s itself, and finds its Pods by such labels: use another name" $label) -}}
{{- end -}}
{{- if hasPrefix "rbac.authorization.k8s.io/" $label -}}
{{- fail (printf "commonLabels: %s would add the chart's roles to those of Kubernetes: use another name" $label) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.nodesetController.podMonitor.enabled (dig "serviceMonitor" "enabled" false .Values.nodesetController) -}}
{{- fail "nodesetController.serviceMonitor.enabled: podMonitor scrapes the same Pods, so each series would exist twice: enable one of the two" -}}
{{- end -}}
{{- $topology := .Values.nodesetController.topology -}}
{{- if and (has $topology.kind (list "tree" "block")) (not $topology.labels) -}}
{{- fail (printf "nodesetController.topology.labels: a %s needs the labels of Nodes that define it" $topology.kind) -}}
{{- end -}}
{{- $tls := include "sunk.natsTls" . | fromJson -}}
{{- if and $tls.generate $tls.existingSecret -}}
{{- fail "nats.tls.generate: nats.tls.existingSecret names a certificate too: set one of the two" -}}
{{- end -}}
{{- if and $tls.names (not $tls.generate) -}}
{{- fail "nats.tls.names: these names go into the certificate that nats.tls.generate creates: set nats.tls.generate, or put them into your own certificate" -}}
{{- end -}}
{{- range $tls.names -}}
{{- if regexMatch "^[0-9.]+$" . -}}
{{- fail (printf "nats.tls.names: %s is an address: give a host name, and let clients connect to it" .) -}}
{{- end -}}
{{- end -}}
{{- if and $tls.generate (not .Values.nats.enabled) -}}
{{- fail "nats.tls.generate: the certificate is for this chart's NATS, and nats.enabled is false: put the CA of your NATS into a Secret as ca.crt, and name it in nats.tls.existingSecret" -}}
{{- end -}}
{{- $lock := .Values.nodesetController.lock -}}
{{- if eq $lock.effect "NoExecute" -}}
{{- range $key, $spared := dict "dryRun" $lock.dryRun "exemptNamespaces" $lock.exemptNamespaces "deleteAfterSeconds" $lock.deleteAfterSeconds "exemptPriorityClasses" (ne (join "," $lock.exemptPriorityClasses) "system-node-critical") -}}
{{- if $spared -}}
{{- fail (printf "nodesetController.lock.%s: with effect NoExecute Kubernetes removes all other Pods; set effect NoSchedule, or leave this value at its default" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .Values.nats.enabled -}}
{{- $store := include "sunk.mebibytes" (.Values.nats.persistence.maxFileStore | trimSuffix "B") | int64 -}}
{{- $size := include "sunk.mebibytes" .Values.nats.persistence.size | int64 -}}
{{- /* 1 GiB of facts a cluster, 256 MiB of dead letters, and as much for states, which have no bound of their own. */ -}}
{{- $needed := add (mul 1024 (len $names)) 512 -}}
{{- if lt $store (int64 $needed) -}}
{{- fail (printf "nats.persistence.maxFileStore: %s is too small for %d Slurm clusters: set at least %dMiB" .Values.nats.persistence.maxFileStore (len $names) $needed) -}}
{{- end -}}
{{- if and .Values.nats.growing (eq (int .Values.nats.replicas) 1) -}}
{{- fail "nats.growing: there is only one server to grow to: set nats.replicas to 3" -}}
{{- end -}}
{{- if include "sunk.hasTeams" . -}}
{{- $teams := include "sunk.teams" . | fromJson -}}
{{- $theirs := include "sunk.mebibytes" ($teams.persistence.maxFileStore | trimSuffix "B") | int64 -}}
{{- if lt $theirs (int64 (add (mul 1024 (len $names)) 256)) -}}
{{- fail (printf "nats.teams.persistence.maxFileStore: %s is too small for %d Slurm clusters: set at least %dMiB" $teams.persistence.maxFileStore (len $names) (add (mul 1024 (len $names)) 256)) -}}
{{- end -}}
{{- if gt $theirs (include "sunk.mebibytes" $teams.persistence.size | int64) -}}
{{- fail (printf "nats.teams.persistence.maxFileStore: %s is more than the volume of %s (nats.teams.persistence.size)" $teams.persistence.maxFileStore $teams.persistence.size) -}}
{{- end -}}
{{- with .Values.nats.existingSecret -}}
{{- $there := lookup "v1" "Secret" $.Release.Namespace . -}}
{{- range concat (list (dict "name" "teams")) (include "sunk.teamUsers" $ | fromJsonArray) -}}
{{- if and $there (not (hasKey ($there.data | default dict) .name)) -}}
{{- fail (printf "nats.existingSecret: the Secret %s has no password %s, which nats.subscribers needs: add it" $.Values.nats.existingSecret .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if gt $store $size -}}
{{- fail (printf "nats.persistence.maxFileStore: %s is more than the volume of %s (nats.persistence.size)" .Values.nats.persistence.maxFileStore .Values.nats.persistence.size) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The same of `view`; its templates that fail without these values include it first. */}}
{{- define "sunk.viewChecks" -}}
{{- if and (.Values.view).enabled (not .Values.view.image) -}}
{{- fail "view: the values are from an earlier version, which has no view: upgrade with --reset-then-reuse-values instead of --reuse-values" -}}
{{- end -}}
{{- with and .Values.nats.enabled (.Values.view).enabled .Values.nats.existingSecret -}}
{{- $there := lookup "v1" "Secret" $.Release.Namespace . -}}
{{- if and $there (not (hasKey ($there.data | default dict) "view")) -}}
{{- fail (printf "nats.existingSecret: the Secret %s has no password view, which view.enabled needs: add it" .) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* 8Gi as a number of MiB. */}}
{{- define "sunk.mebibytes" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- if hasSuffix "Ti" . }}{{ mul $number 1048576 }}{{ else if hasSuffix "Gi" . }}{{ mul $number 1024 }}{{ else }}{{ $number }}{{ end -}}
{{- end }}

{{/* What cannot be changed once the servers are there, or only step by step: says so before half of an upgrade is done. */}}
{{- define "sunk.natsStays" -}}
{{- $nats := .Values.nats -}}
{{- $grows := eq (include "sunk.natsMode" .) "growing" -}}
{{- $guide := "helm/sunk/README.md, \"From one server to three\"" -}}
{{- $there := lookup "apps/v1" "StatefulSet" .Release.Namespace "sunk-nats" -}}
{{- /* Without a cluster to ask, nothing is known. */ -}}
{{- if and $grows (not $there) (lookup "v1" "Namespace" "" .Release.Namespace) -}}
{{- fail "nats.growing: there is no server yet, so there are no streams to copy: remove nats.growing" -}}
{{- end -}}
{{- with $there -}}
{{- $way := "To change it, delete the StatefulSet sunk-nats and its PersistentVolumeClaims first: states are published again, stored facts are lost" -}}
{{- $has := int .spec.replicas -}}
{{- $wants := int $nats.replicas -}}
{{- $growing := false -}}
{{- range .spec.template.spec.containers }}{{ if eq .name "alone" }}{{ $growing = true }}{{ end }}{{ end -}}
{{- $jobs := 0 -}}
{{- $succeeded := 0 -}}
{{- range (lookup "batch/v1" "Job" $.Release.Namespace "").items -}}
{{- if eq (dig "metadata" "labels" "app.kubernetes.io/name" "" .) "sunk-nats-growth" -}}
{{- $jobs = add $jobs 1 -}}
{{- $succeeded = add $succeeded (int (dig "status" "succeeded" 0 .)) -}}
{{- end -}}
{{- end -}}
{{- $copied := and $jobs (eq $jobs $succeeded) -}}
{{- if and $grows (not $growing) (eq $has 3) -}}
{{- fail "nats.growing: there are three servers already: remove nats.growing" -}}
{{- end -}}
{{- if and $growing (not $grows) (eq $wants 3) (not $copied) -}}
{{- fail (printf "nats.growing: the streams are not copied to the three servers yet (kubectl -n %s logs -l app.kubernetes.io/name=sunk-nats-growth). Upgrade with nats.growing=true again, or with nats.replicas=1 to give up: %s" $.Release.Namespace $guide) -}}
{{- end -}}
{{- if and (not $growing) (not $grows) (eq $has 1) (eq $wants 3) -}}
{{- fail (printf "nats.replicas: there is 1 server, and its streams must be copied to the three. Upgrade with nats.growing=true first: %s" $guide) -}}
{{- end -}}
{{- if and (not $growing) (eq $has 3) (eq $wants 1) -}}
{{- fail (printf "nats.replicas: there are 3 servers, and their streams cannot move to 1. %s" $way) -}}
{{- end -}}
{{- $claim := (first .spec.volumeClaimTemplates).spec -}}
{{- $size := $claim.resources.requests.storage -}}
{{- $held := include "sunk.mebibytes" $size | int64 -}}
{{- $wanted := include "sunk.mebibytes" $nats.persistence.size | int64 -}}
{{- if lt $held $wanted -}}
{{- fail (printf "nats.persistence.size: the volumes have %s, and an upgrade alone does not make them %s. Enlarge the claims first, which loses no data: helm/sunk/README.md, \"Larger volumes\"" $size $nats.persistence.size) -}}
{{- end -}}
{{- if gt $held $wanted -}}
{{- fail (printf "nats.persistence.size: the volumes have %s and cannot become %s. %s" $size $nats.persistence.size $way) -}}
{{- end -}}
{{- $class := $nats.persistence.storageClassName -}}
{{- if ne ($claim.storageClassName | default "") $class -}}
{{- fail (printf "nats.persistence.storageClassName: the volumes have %q and cannot have %q. %s" ($claim.storageClassName | default "") $class $way) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* CoreWeave's SUNK has definitions of the same names. `found`: the definitions of the cluster by name, empty where there is none. */}}
{{- define "sunk.otherDefinitions" -}}
{{- $other := "" -}}
{{- range $name := list "sunkclusters" "slurmclusters" }}{{ if dig $name "metadata" "name" "" $.found }}{{ $other = $name }}{{ end }}{{ end -}}
{{- range dig "nodesets" "spec" "versions" list .found -}}
{{- if not (dig "schema" "openAPIV3Schema" "properties" "spec" "properties" "cluster" dict .) }}{{ $other = "nodesets" }}{{ end -}}
{{- end -}}
{{- with $other -}}
{{- fail (printf "This Kubernetes cluster has another SUNK, perhaps CoreWeave's: the definition %s.sunk.coreweave.com is not of this chart. Both use the API group sunk.coreweave.com, so a Kubernetes cluster can have only one of them. Use another Kubernetes cluster, or remove the other one with its definitions first" .) -}}
{{- end -}}
{{- end }}
