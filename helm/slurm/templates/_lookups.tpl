{{- /* What the values promise that the cluster does not keep. Each refusal names the key and the fix. */ -}}
{{- /* Names that others have already. */ -}}
{{- define "slurm.checkNames" -}}
{{- if .Values.scheduler.enabled }}
{{- $mine := include "slurm.schedulerName" . }}
{{- range (lookup "apps/v1" "Deployment" "" "" | default dict).items }}
{{- $theirs := dig "metadata" "annotations" "sunk.coreweave.com/scheduler-name" "" . }}
{{- $isUs := and (eq .metadata.namespace $.Release.Namespace) (eq .metadata.name (printf "%s-scheduler" (include "slurm.fullname" $))) }}
{{- if and (eq $theirs $mine) (not $isUs) }}
{{- fail (printf "scheduler.name: %[2]s/%[3]s serves %[1]s already, and both would place the same Pods: set another name" $mine .metadata.namespace .metadata.name) }}
{{- end }}
{{- end }}
{{- end }}
{{- range (lookup "sunk.coreweave.com/v1alpha1" "NodeSet" "" "" | default dict).items }}
{{- $isOurs := and (eq .metadata.namespace $.Release.Namespace) (eq (dig "labels" "app.kubernetes.io/instance" "" .metadata) $.Release.Name) }}
{{- if and (eq .spec.cluster $.Values.clusterName) (not $isOurs) }}
{{- fail (printf "clusterName: %s has the NodeSet %s/%s already, and each Slurm cluster needs its own name: set another name" $.Values.clusterName .metadata.namespace .metadata.name) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What the sunk release must know of us, if it can be seen. */ -}}
{{- define "slurm.checkSunk" -}}
{{- if not (.Capabilities.APIVersions.Has "sunk.coreweave.com/v1alpha1/NodeSet") }}
{{- fail "compute.nodes: the cluster has no kind NodeSet: install helm/sunk first" }}
{{- end }}
{{- if not .Values.nats.existingSecret }}
{{- $users := dig "data" dict (lookup "v1" "Secret" .Values.sunk.namespace .Values.nats.usersSecret | default dict) }}
{{- if not $users }}
{{- fail (printf "nats.usersSecret: there is no Secret %s/%s: install helm/sunk first, set sunk.namespace to where it is, or set nats.existingSecret" .Values.sunk.namespace .Values.nats.usersSecret) }}
{{- end }}
{{- range $service := list "syncer" "pod-scheduler" "hook-gateway" "metrics-exporter" }}
{{- if not (hasKey $users (printf "%s-%s" $service $.Values.clusterName)) }}
{{- fail (printf "clusterName: the sunk release has no Slurm cluster %s: add it to the clusters of helm/sunk, or set the name that it has there" $.Values.clusterName) }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.sunk.priorityClassName }}
{{- if not (lookup "scheduling.k8s.io/v1" "PriorityClass" "" .) }}
{{- fail (printf "sunk.priorityClassName: there is no PriorityClass %s, so Kubernetes would refuse all compute Pods: upgrade helm/sunk first, or leave it empty" .) }}
{{- end }}
{{- end }}
{{- with lookup "apps/v1" "Deployment" .Values.sunk.namespace .Values.sunk.controllerName }}
{{- $said := dict }}
{{- range (first .spec.template.spec.containers).env }}{{ $_ := set $said (trimPrefix "SUNK_NODESET_CONTROLLER_" .name) (.value | default "") }}{{ end }}
{{- $namespace := "" }}
{{- range dig "spec" "variables" list (lookup "admissionregistration.k8s.io/v1" "ValidatingAdmissionPolicy" "" "sunk-nodesets" | default dict) }}
{{- if eq .name "namespaces" }}{{ $namespace = index (fromJson .expression) $.Values.clusterName | default "" }}{{ end }}
{{- end }}
{{- include "slurm.checkSaid" (dict "root" $ "said" $said "namespace" $namespace) }}
{{- end }}
{{- end }}

{{- /* What both releases must say alike. Arguments: root, said (the settings of the sunk
release's nodeset-controller), namespace (where that release wants our NodeSets, if it says). */ -}}
{{- define "slurm.checkSaid" -}}
{{- $said := .said }}
{{- $namespace := .namespace }}
{{- with .root }}
{{- if and $namespace (ne $namespace .Release.Namespace) }}
{{- fail (printf "clusterName: the sunk release has %s in namespace %s: install there, or set this namespace in its clusters" .Values.clusterName $namespace) }}
{{- end }}
{{- $replicas := $said.NATS_REPLICAS | default "1" }}
{{- if ne $replicas (toString (int .Values.nats.replicas)) }}
{{- fail (printf "nats.replicas: the sunk release keeps streams on %s servers: set the same in both" $replicas) }}
{{- end }}
{{- $url := $said.NATS_URL | default (include "slurm.natsUrl" .) }}
{{- if and (not .Values.nats.url) (ne $url (include "slurm.natsUrl" .)) }}
{{- fail (printf "nats.url: is empty, and the sunk release uses a NATS outside its release: set %s" $url) }}
{{- end }}
{{- if and $said.NATS_CA_FILE (not (include "slurm.natsCaSecret" .)) }}
{{- fail "nats.tls.caSecret: is empty, and the NATS of the sunk release uses TLS: wait until that release is ready, if its Secret has no ca.crt yet; or name a Secret with its ca.crt" }}
{{- end }}
{{- $lock := $said.LOCK_KEY | default "sunk.coreweave.com/lock" }}
{{- if ne $lock .Values.sunk.lockKey }}
{{- fail (printf "sunk.lockKey: the sunk release locks Nodes with the taint %s, and the compute Pods would not tolerate it: set the same in both" $lock) }}
{{- end }}
{{- $kind := $said.TOPOLOGY | default "none" }}
{{- if eq $kind "both" }}{{ $kind = "tree" }}{{ end }}
{{- if not (or .Values.slurmConfig.topologyConfigMap (has .Values.slurmConfig.topologyPlugin (list "topology/default" (printf "topology/%s" $kind)))) }}
{{- fail (printf "slurmConfig.topologyPlugin: %s reads a topology.conf, and the sunk release creates one of kind %s: choose the same in helm/sunk, or set slurmConfig.topologyConfigMap" .Values.slurmConfig.topologyPlugin $kind) }}
{{- end }}
{{- if .Values.syncer.nodePermissions.enabled }}
{{- if not (has .Values.clusterName (splitList "," ($said.NODE_PERMISSIONS | default ""))) }}
{{- fail (printf "syncer.nodePermissions.enabled: the sunk release does not allow %s to reboot Nodes: first permit it in the clusters of helm/sunk" .Values.clusterName) }}
{{- end }}
{{- $condition := $said.REBOOT_CONDITION | default "PhaseState" }}
{{- $reason := $said.REBOOT_REASON | default "production-powerreset" }}
{{- $mine := printf "%s=" .Values.clusterName }}
{{- range splitList "," ($said.REBOOT_CONDITIONS | default "") }}{{ if hasPrefix $mine . }}{{ $condition = trimPrefix $mine . }}{{ end }}{{ end }}
{{- range splitList "," ($said.REBOOT_REASONS | default "") }}{{ if hasPrefix $mine . }}{{ $reason = trimPrefix $mine . }}{{ end }}{{ end }}
{{- if ne $condition .Values.syncer.hooksAPI.nodeRebootCondition }}
{{- fail (printf "syncer.hooksAPI.nodeRebootCondition: the sunk release, which writes Nodes, writes %s: set the same in both" $condition) }}
{{- end }}
{{- if ne $reason .Values.syncer.hooksAPI.nodeRebootReason }}
{{- fail (printf "syncer.hooksAPI.nodeRebootReason: the sunk release, which writes Nodes, writes %s: set the same in both" $reason) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "slurm.checkStorage" -}}
{{- $classes := (lookup "storage.k8s.io/v1" "StorageClass" "" "" | default dict).items | default list }}
{{- $names := list }}
{{- $hasDefault := false }}
{{- range $classes }}
{{- $names = append $names .metadata.name }}
{{- if eq (dig "annotations" "storageclass.kubernetes.io/is-default-class" "" .metadata) "true" }}{{ $hasDefault = true }}{{ end }}
{{- end }}
{{- $wanted := dict "controller.stateVolume.storageClassName" .Values.controller.stateVolume.storageClassName }}
{{- if and .Values.accounting.enabled (not .Values.accounting.external.host) }}
{{- $_ := set $wanted "mariadb.storageClassName" .Values.mariadb.storageClassName }}
{{- end }}
{{- range $key, $class := $wanted }}
{{- if and $class (not (has $class $names)) }}
{{- fail (printf "%s: there is no StorageClass %s: set one of %s" $key $class (join ", " $names | default "none at all")) }}
{{- end }}
{{- if and (not $class) (not $hasDefault) }}
{{- fail (printf "%s: is empty, and no StorageClass is the default: set one of %s" $key (join ", " $names | default "none at all")) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What an upgrade cannot change: said before half of it is done. */ -}}
{{- define "slurm.checkUpgrade" -}}
{{- $found := dict "root" . "sets" dict }}
{{- range (lookup "apps/v1" "StatefulSet" .Release.Namespace "" | default dict).items }}
{{- if eq (dig "labels" "app.kubernetes.io/instance" "" .metadata) $.Release.Name }}
{{- $_ := set $found (dig "labels" "app.kubernetes.io/name" "other" .metadata) . }}
{{- end }}
{{- end }}
{{- range (lookup "sunk.coreweave.com/v1alpha1" "NodeSet" .Release.Namespace "" | default dict).items }}
{{- $_ := set $found.sets .metadata.name .spec }}
{{- end }}
{{- include "slurm.checkStays" $found }}
{{- end }}

{{- /* Arguments: root, slurmctld and mariadb (their StatefulSets, if they are there), sets (specs of NodeSets by name). */ -}}
{{- define "slurm.checkStays" -}}
{{- $root := .root }}
{{- $name := include "slurm.fullname" $root }}
{{- $values := $root.Values }}
{{- with .slurmctld }}
{{- if ne .metadata.name (printf "%s-controller" $name) }}
{{- fail (printf "fullnameOverride: this release has %s, and with another name it would be another cluster, without keys and state: set %s" .metadata.name (trimSuffix "-controller" .metadata.name)) }}
{{- end }}
{{- $cluster := dig "labels" "sunk.coreweave.com/cluster" $values.clusterName .spec.template.metadata }}
{{- if ne $cluster $values.clusterName }}
{{- fail (printf "clusterName: this release is %s in slurmctld's state, accounting and NodeSets: set this name, or install another release" $cluster) }}
{{- end }}
{{- $volume := $values.controller.stateVolume }}
{{- include "slurm.checkClaim" (dict "path" "controller.stateVolume" "set" . "size" $volume.size "class" $volume.storageClassName "modes" $volume.accessModes) }}
{{- end }}
{{- with .mariadb }}
{{- if and $values.accounting.enabled (not $values.accounting.external.host) }}
{{- include "slurm.checkClaim" (dict "path" "mariadb" "set" . "size" $values.mariadb.size "class" $values.mariadb.storageClassName "modes" (list "ReadWriteOnce")) }}
{{- end }}
{{- end }}
{{- $sets := .sets }}
{{- range $set := include "slurm.sets" $root | fromJsonArray }}
{{- $before := dig (printf "%s-%s" $name $set.name) "podNamePrefix" "" $sets }}
{{- $prefix := $set.values.podNamePrefix | default $set.name }}
{{- if and $before (ne $before $prefix) }}
{{- fail (printf "compute.nodes.%s.podNamePrefix: the names of its Slurm nodes begin with %s, which cannot be changed: set %[2]s, or add a set with another name" $set.name $before) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A StatefulSet's claim never changes. Arguments: path (of the values), set, size, class, modes. */ -}}
{{- define "slurm.checkClaim" -}}
{{- $claim := (first .set.spec.volumeClaimTemplates).spec }}
{{- $way := printf "set the former value; or change the volume by hand, run `kubectl delete statefulset %s --cascade=orphan`, and upgrade again" .set.metadata.name }}
{{- if ne (include "slurm.bytes" $claim.resources.requests.storage) (include "slurm.bytes" .size) }}
{{- fail (printf "%s.size: the volume has %s, and an upgrade cannot change that to %s: %s" .path $claim.resources.requests.storage (toString .size) $way) }}
{{- end }}
{{- if ne ($claim.storageClassName | default "") .class }}
{{- fail (printf "%s.storageClassName: the volume has class %q, and an upgrade cannot change that to %q: %s" .path ($claim.storageClassName | default "") .class $way) }}
{{- end }}
{{- if ne (toJson $claim.accessModes) (toJson .modes) }}
{{- fail (printf "%s.accessModes: the volume has %s, and an upgrade cannot change that to %s: %s" .path (join "," $claim.accessModes) (join "," .modes) $way) }}
{{- end }}
{{- end }}

{{- /* 8Gi as a number; a spelling that is not known stays as it is. */ -}}
{{- define "slurm.bytes" -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[kKMGTPE]i?$" $text -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- if and (hasKey $factors $unit) (regexMatch "^[0-9]+[kKMGT]?i?$" $text) -}}
{{ mul (trimSuffix $unit $text | int64) (index $factors $unit | int64) }}
{{- else -}}
{{ $text }}
{{- end }}
{{- end }}

{{- /*
Prologs fail on a Pod that does not know the gateway's CA, or calls by TLS alone where there is none. Arguments: root,
pods, scripts (the ConfigMap with hooks.env of before).
*/ -}}
{{- define "slurm.checkHooksTls" -}}
{{- $secret := include "slurm.hooksTlsSecret" .root }}
{{- $isOpen := ne (include "slurm.hooksUrlWithoutTls" .root) "" }}
{{- $before := dig "data" "hooks.env" "" .scripts }}
{{- $isTlsAlone := and (contains "SUNK_HOOKS_URL=https:" $before) (not (contains "SUNK_HOOKS_URL_WITHOUT_TLS=" $before)) }}
{{- range $pod := .pods }}
{{- $labels := $pod.metadata.labels | default dict }}
{{- $isCompute := and (eq (dig "app.kubernetes.io/instance" "" $labels) $.root.Release.Name) (eq (dig "app.kubernetes.io/name" "" $labels) "slurmd") }}
{{- if and $isCompute (not $pod.metadata.deletionTimestamp) }}
{{- $known := "" }}
{{- range $pod.spec.volumes }}{{ if eq .name "hooks-ca" }}{{ $known = .secret.secretName }}{{ end }}{{ end }}
{{- $way := "(docs/security.md, \"TLS of the hooks and of slurmrestd\")" }}
{{- if and $secret (not $isOpen) (not $known) }}
{{- fail (printf "hookGateway.tls.required: the Pod %s was created without the CA of the hook gateway, so each job that starts there would fail: first upgrade with false, and set true when every compute Pod was replaced %s" $pod.metadata.name $way) }}
{{- else if and $secret (not $isOpen) (ne $known $secret) }}
{{- fail (printf "hookGateway.tls: the Pod %s knows the CA of the Secret %s, and not that of %s, so each job that starts there would fail. Set required to false until every compute Pod was replaced; or set checks.cluster to false if both have the same CA %s" $pod.metadata.name $known $secret $way) }}
{{- else if and $known $isTlsAlone (or (not $secret) (ne $known $secret)) }}
{{- fail (printf "hookGateway.tls: the Pod %s calls the hook gateway only with TLS, with the CA of the Secret %s, so jobs that start now would fail: first upgrade with that Secret and required: false, and wait three minutes %s" $pod.metadata.name $known $way) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
