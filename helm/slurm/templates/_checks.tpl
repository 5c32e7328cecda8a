{{- /*
Values that would break a promise, and what the cluster says about them. Each refusal names the key and the fix;
what a schema can tell is told by values.schema.json.
*/ -}}
{{- define "slurm.check" -}}
{{- include "slurm.checkName" . }}
{{- include "slurm.checkConf" . }}
{{- include "slurm.checkSets" . }}
{{- include "slurm.checkServices" . }}
{{- include "slurm.checkPlugins" . }}
{{- include "slurm.checkAccounting" . }}
{{- include "slurm.checkVersions" . }}
{{- include "slurm.checkConventions" . }}
{{- if and .Values.checks.cluster (include "slurm.isConnected" .) }}
{{- include "slurm.checkNames" . }}
{{- include "slurm.checkSunk" . }}
{{- include "slurm.checkStorage" . }}
{{- include "slurm.checkUpgrade" . }}
{{- $keys := lookup "v1" "Secret" .Release.Namespace (include "slurm.keysSecret" .) | default dict }}
{{- include "slurm.checkKeys" (dict "root" . "secret" $keys) }}
{{- include "slurm.checkMungeKey" (dict "root" . "secret" $keys) }}
{{- $conf := lookup "v1" "ConfigMap" .Release.Namespace (printf "%s-slurm-conf" (include "slurm.fullname" .)) | default dict }}
{{- $pods := (lookup "v1" "Pod" .Release.Namespace "" | default dict).items }}
{{- include "slurm.checkAuthType" (dict "root" . "conf" $conf "pods" $pods) }}
{{- $scripts := lookup "v1" "ConfigMap" .Release.Namespace (printf "%s-scripts" (include "slurm.fullname" .)) | default dict }}
{{- include "slurm.checkHooksTls" (dict "root" . "pods" $pods "scripts" $scripts) }}
{{- end }}
{{- end }}

{{- define "slurm.checkName" -}}
{{- if not .Values.clusterName }}
{{- fail "clusterName: is missing: give the Slurm cluster a name, and add this name to the clusters of the sunk release" }}
{{- end }}
{{- $name := include "slurm.fullname" . }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "fullnameOverride: no Service may have a name that begins with %q: set a name of small letters, digits and hyphens that begins with a letter" $name) }}
{{- end }}
{{- end }}

{{- /* What extraConfig may not say, and where it is said instead. */ -}}
{{- define "slurm.ownKeys" -}}
accountingstorageenforce: accounting.enforce
accountingstoragehost: accounting.external
accountingstoragetype: accounting.enabled
authaltparameters: keys.existingSecret
authalttypes: nothing, the services call Slurm with tokens
authinfo: slurmConfig.hookDeadline and hooks.timeoutSeconds, credentials live 60 s longer than both together
authtype: auth.type
clustername: clusterName
credtype: auth.type
defmempercpu: slurmConfig.defMemPerCPU
epilog: hooks.epilog
include: its lines here, where the chart can check them
jobacctgathertype: slurmConfig.jobAcctGatherType
killwait: slurmConfig.killWait
maxnodecount: slurmConfig.maxNodeCount
minjobage: nothing, the services look at ended jobs for its 300 s
nodename: compute.nodes, nodes register themselves
plugstackconfig: slurmConfig.plugstackConfig
inactivelimit: slurmConfig.inactiveLimit
maxarraysize: slurmConfig.maxArraySize
maxdbdmsgs: accounting.maxMessages
maxjobcount: slurmConfig.maxJobCount
messagetimeout: slurmConfig.messageTimeout
unkillablesteptimeout: slurmConfig.unkillableStepTimeout
preemptmode: slurmConfig.preemptMode
preemptparameters: slurmConfig.preemption
preempttype: slurmConfig.preemption
priorityweightage: slurmConfig.priority.age
priorityweightfairshare: slurmConfig.priority.fairshare
priorityweightjobsize: slurmConfig.priority.jobSize
priorityweightpartition: slurmConfig.priority.partition
priorityweightqos: slurmConfig.priority.qos
proctracktype: slurmConfig.proctrackType
prolog: hooks.prolog
batchstarttimeout: slurmConfig.hookDeadline and hooks.timeoutSeconds, it is 60 s more
prologepilogtimeout: slurmConfig.hookDeadline and hooks.timeoutSeconds, it is 30 s more
epilogtimeout: slurmConfig.hookDeadline
prologtimeout: slurmConfig.hookDeadline
prologflags: nothing, jobs wait for their nodes' locks with Alloc,DeferBatch; jobContainerConfig adds Contain
rebootprogram: syncer.nodePermissions.enabled
resumetimeout: slurmConfig.resumeTimeout
returntoservice: slurmConfig.returnToService
schedulerparameters: slurmConfig.schedulerParameters
selecttype: nothing, placeholders share nodes by select/cons_tres
selecttypeparameters: slurmConfig.selectTypeParameters
slurmctldhost: nothing, it is the controller's Pod
slurmctldparameters: slurmConfig.slurmctldParameters
slurmctldport: nothing, it is 6817
slurmctldtimeout: slurmConfig.slurmctldTimeout
slurmdparameters: slurmConfig.slurmdParameters
slurmdport: nothing, it is 6818
slurmdtimeout: slurmConfig.slurmdTimeout
slurmduser: nothing, it is root
slurmuser: nothing, it is slurm
statesavelocation: controller.stateVolume
taskprolog: compute.scratch
taskplugin: slurmConfig.taskPlugin
topologyplugin: slurmConfig.topologyPlugin
{{- end }}

{{- define "slurm.checkConf" -}}
{{- $own := include "slurm.ownKeys" . | fromYaml }}
{{- range $line := splitList "\n" .Values.slurmConfig.extraConfig }}
{{- $key := regexFind "^\\s*[A-Za-z]+" $line | trim | lower }}
{{- with index $own $key }}
{{- fail (printf "slurmConfig.extraConfig: has %s, which the services rely on: set %s" (trim (regexFind "^\\s*[A-Za-z]+" $line)) .) }}
{{- end }}
{{- end }}
{{- if and .Values.slurmConfig.jobContainerConfig (not (regexMatch "(?im)^\\s*(JobContainerType|NamespaceType)\\s*=" .Values.slurmConfig.extraConfig)) }}
{{- fail "slurmConfig.jobContainerConfig: nothing reads it: set JobContainerType=job_container/tmpfs in slurmConfig.extraConfig" }}
{{- end }}
{{- range $line := splitList "\n" .Values.compute.partitions }}
{{- if and (trim $line) (not (regexMatch "(?i)^\\s*(PartitionName=|#|NodeSet=|DownNodes=)" $line)) }}
{{- fail (printf "compute.partitions: %q is not a line of a partition: begin it with PartitionName=, or move it to slurmConfig.extraConfig" (trim $line)) }}
{{- end }}
{{- end }}
{{- include "slurm.checkFiles" . }}
{{- include "slurm.checkPartitions" . }}
{{- if and (eq .Values.slurmConfig.preemption "qos") (not .Values.accounting.enabled) }}
{{- fail "slurmConfig.preemption: qos needs accounting, which defines QoS: set accounting.enabled to true, or preemption to partition" }}
{{- end }}
{{- $enforced := splitList "," (nospace (lower .Values.accounting.enforce)) }}
{{- if and (eq .Values.slurmConfig.preemption "qos") (not (has "qos" $enforced)) (not (has "all" $enforced)) }}
{{- fail "accounting.enforce: without `qos` in it any user may name any QoS, and preempt any user's jobs with slurmConfig.preemption qos: set it to associations,limits,qos, or preemption to partition" }}
{{- end }}
{{- if lt (int .Values.slurmConfig.unkillableStepTimeout) (mul 5 (int .Values.slurmConfig.messageTimeout) | int) }}
{{- fail (printf "slurmConfig.unkillableStepTimeout: %d is less than five times slurmConfig.messageTimeout, which Slurm requires: set %d or more" (int .Values.slurmConfig.unkillableStepTimeout) (mul 5 (int .Values.slurmConfig.messageTimeout))) }}
{{- end }}
{{- if not (contains "_Memory" .Values.slurmConfig.selectTypeParameters) }}
{{- fail "slurmConfig.selectTypeParameters: does not count memory, so jobs and Pods would get more memory than the node has: set CR_Core_Memory or CR_CPU_Memory" }}
{{- end }}
{{- end }}

{{- /* Files that the chart makes itself, and where their content is said. */ -}}
{{- define "slurm.ownFiles" -}}
slurm.conf: slurmConfig.extraConfig
cgroup.conf: slurmConfig.cgroupConfig
gres.conf: slurmConfig.gresConfig
job_container.conf: slurmConfig.jobContainerConfig
plugstack.conf: slurmConfig.plugstackConfig
slurmdbd.conf: accounting.extraConfig
topology.conf: slurmConfig.topologyConfigMap
topology.yaml: slurmConfig.topologyConfigMap
{{- end }}

{{- /* Files that Slurm would not read: a name that is none or taken, a key, a script that no line of slurm.conf names. */ -}}
{{- define "slurm.checkFiles" -}}
{{- $own := include "slurm.ownFiles" . | fromYaml }}
{{- $readers := dict "job_submit.lua" "JobSubmitPlugins=lua" "cli_filter.lua" "CliFilterPlugins=lua" }}
{{- range $file, $text := .Values.slurmConfig.files }}
{{- if not (regexMatch "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$" $file) }}
{{- fail (printf "slurmConfig.files: %q is not a file name: write letters, digits, hyphens, underscores and dots, and no folder" $file) }}
{{- end }}
{{- with index $own $file }}
{{- fail (printf "slurmConfig.files: the chart makes %s itself: set %s" $file .) }}
{{- end }}
{{- if regexMatch "(?i)\\.(key|jwks|pem)([.~]|$)|jwks|^id_[a-z0-9]+$" $file }}
{{- fail (printf "slurmConfig.files: %s holds a key, and users of login Pods can read these files: put it into a Secret, and mount the Secret with controller.extraVolumes and extraVolumeMounts" $file) }}
{{- end }}
{{- with index $readers $file }}
{{- $key := regexFind "^[A-Za-z]+" . }}
{{- if not (regexMatch (printf "(?im)^\\s*%s\\s*=.*lua" $key) $.Values.slurmConfig.extraConfig) }}
{{- fail (printf "slurmConfig.files: nothing reads %s: set %s in slurmConfig.extraConfig" $file .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What Helm's usual values may not say. */ -}}
{{- define "slurm.checkConventions" -}}
{{- range $label, $_ := .Values.commonLabels }}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|component|part-of|managed-by|version)|helm\\.sh/chart|(.*\\.)?sunk\\.coreweave\\.com/.*)$" $label }}
{{- fail (printf "commonLabels: the chart sets %s itself, and finds its Pods by such labels: use another name" $label) }}
{{- end }}
{{- if hasPrefix "rbac.authorization.k8s.io/" $label }}
{{- fail (printf "commonLabels: %s would add the chart's roles to those of Kubernetes: use another name" $label) }}
{{- end }}
{{- end }}
{{- range $part := list "alerts" "dashboards" }}
{{- if dig "enabled" false (index $.Values $part | default dict) }}
{{- fail (printf "%s.enabled: the %s of all Slurm clusters are in the sunk release now: set %s.enabled there, and remove it here" $part $part $part) }}
{{- end }}
{{- end }}
{{- if and .Values.podMonitor.enabled (dig "enabled" false (.Values.serviceMonitor | default dict)) }}
{{- fail "serviceMonitor.enabled: podMonitor scrapes the same Pods, so each series would exist twice: enable one of the two" }}
{{- end }}
{{- end }}

{{- /* Nodes of a partition are those of sets: slurmctld does not start with a name that it does not know. */ -}}
{{- define "slurm.checkPartitions" -}}
{{- $known := list }}
{{- range $set := include "slurm.sets" . | fromJsonArray }}{{ $known = append $known $set.name }}{{ end }}
{{- $lines := concat (splitList "\n" .Values.slurmConfig.extraConfig) (splitList "\n" .Values.compute.partitions) }}
{{- range $lines }}
{{- with regexFind "(?i)^\\s*NodeSet=[^\\s]+" . }}{{ $known = append $known (trim . | substr 8 -1) }}{{ end }}
{{- end }}
{{- range $line := splitList "\n" .Values.compute.partitions }}
{{- $nodes := regexReplaceAll "(?i)^\\s*Nodes=" (regexFind "(?i)\\sNodes=[^\\s]+" $line) "" }}
{{- range $name := splitList "," (trimAll "\"" $nodes) }}
{{- if and $name (regexMatch "(?i)^\\s*PartitionName=" $line) (ne (upper $name) "ALL") (not (has $name $known)) }}
{{- fail (printf "compute.partitions: there is no set %s in compute.nodes for %q: add it there, or write Nodes=ALL" $name (trim $line)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "slurm.checkSets" -}}
{{- $prefixes := dict }}
{{- $names := dict }}
{{- range $name, $own := .Values.compute.nodes }}
{{- range $layer := ($own.definitions | default list) }}
{{- if not (hasKey $.Values.compute.nodes $layer) }}
{{- fail (printf "compute.nodes.%s.definitions: there is no compute.nodes.%s: name an existing set, or add it with enabled: false" $name $layer) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $set := include "slurm.sets" . | fromJsonArray }}
{{- if has $set.name (list "all" "default") }}
{{- fail (printf "compute.nodes.%s: is a reserved word in Slurm's partitions: use another name" $set.name) }}
{{- end }}
{{- $prefix := $set.values.podNamePrefix | default $set.name }}
{{- with index $prefixes $prefix }}
{{- fail (printf "compute.nodes.%s.podNamePrefix: compute.nodes.%[3]s has %[2]q too, and two Slurm nodes cannot have the same name: set another prefix" $set.name $prefix .) }}
{{- end }}
{{- $_ := set $prefixes $prefix $set.name }}
{{- if regexMatch (printf "(?im)^\\s*PartitionName=%s\\s" $set.name) $.Values.compute.partitions }}
{{- if $.Values.compute.autoPartition.enabled }}
{{- fail (printf "compute.partitions: has a partition %s, and autoPartition creates the same one for compute.nodes.%s: rename one, or set compute.autoPartition.enabled to false" $set.name $set.name) }}
{{- end }}
{{- end }}
{{- if gt (len (printf "%s-%s" (include "slurm.fullname" $) $set.name)) 48 }}
{{- fail (printf "compute.nodes.%s: the NodeSet's name %s-%s has more than 48 letters: shorten the set's name or fullnameOverride" $set.name (include "slurm.fullname" $) $set.name) }}
{{- end }}
{{- if and $set.values.gresGpu (not (regexMatch "^(([A-Za-z0-9_.-]+:)?[0-9]+|none)$" (toString $set.values.gresGpu))) }}
{{- fail (printf "compute.nodes.%s.gresGpu: %q is not TYPE:COUNT: write h100:8, or none" $set.name (toString $set.values.gresGpu)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "slurm.checkServices" -}}
{{- range $key, $name := dict "hookGateway" "hooks" "rest" "rest" }}
{{- $tls := include (printf "slurm.%sTls" $name) $ | fromJson }}
{{- if and $tls.generate $tls.existingSecret }}
{{- fail (printf "%s.tls.generate: %s.tls.existingSecret names a certificate too: set one of the two" $key $key) }}
{{- end }}
{{- end }}
{{- $users := dict }}
{{- range $name, $user := .Values.users }}
{{- if lt (int64 $user.uid) 1000 }}
{{- fail (printf "users[%d].uid: %d belongs to the system: use one from 1000" $name (int64 $user.uid)) }}
{{- end }}
{{- $uid := printf "uid %d" (int64 $user.uid) }}
{{- range $said := list $user.name $uid }}
{{- with index $users $said }}
{{- fail (printf "users[%d]: %s belongs to %s too: give each user a different name and id" $name $said .) }}
{{- end }}
{{- $_ := set $users $said (printf "users[%d]" $name) }}
{{- end }}
{{- end }}
{{- range $kind := list "prolog" "epilog" "prologSlurmctld" "epilogSlurmctld" }}
{{- range $name, $script := index $.Values.hooks $kind }}
{{- if not (hasPrefix "#!" $script) }}
{{- fail (printf "hooks.%s.%s: does not begin with #!, so no node can run it: write #!/bin/bash as its first line" $kind $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- $volumes := list }}
{{- range .Values.global.volumes }}{{ $volumes = append $volumes .name }}{{ end }}
{{- range $index, $mount := .Values.global.volumeMounts }}
{{- if not (has $mount.name $volumes) }}
{{- fail (printf "global.volumeMounts[%d].name: there is no volume %s: add it to global.volumes" $index $mount.name) }}
{{- end }}
{{- end }}
{{- if and .Values.directory.sssdConfig .Values.directory.existingSecret }}
{{- fail "directory.sssdConfig: has no effect with directory.existingSecret: put it into that Secret as sssd.conf, or remove directory.existingSecret" }}
{{- end }}
{{- if and .Values.directory.sssdConfig (not (regexMatch "(?m)^ *services *=.*nss" .Values.directory.sssdConfig)) }}
{{- fail "directory.sssdConfig: does not run nss, so Slurm would know no users: write `services = nss, ssh` below [sssd]" }}
{{- end }}
{{- if and .Values.scheduler.enabled (eq (int64 .Values.scheduler.userId) 0) }}
{{- fail "scheduler.userId: Pods through Slurm never run as root: set the id of a user that slurmctld knows" }}
{{- end }}
{{- if and (eq .Values.scheduler.scope.type "cluster") .Values.scheduler.scope.namespaces }}
{{- fail "scheduler.scope.namespaces: has no effect with scope.type cluster: set scheduler.scope.type to namespace, or leave it empty" }}
{{- end }}
{{- $rule := .Values.syncer.config.syncer.nodesetUpdateJobPreemption }}
{{- if $rule.enabled }}
{{- if and (eq $rule.method "partition") (not $rule.partitions) }}
{{- fail "syncer.config.syncer.nodesetUpdateJobPreemption.partitions: is missing with method partition: name the partitions whose jobs are requeued" }}
{{- end }}
{{- if and (eq $rule.method "qos") (not $rule.qos) }}
{{- fail "syncer.config.syncer.nodesetUpdateJobPreemption.qos: is missing with method qos: name the QoS whose jobs are requeued" }}
{{- end }}
{{- end }}
{{- if and .Values.controller.backup.enabled (not (has "ReadWriteMany" .Values.controller.stateVolume.accessModes)) }}
{{- fail "controller.backup.enabled: both slurmctlds need the same state: add ReadWriteMany to controller.stateVolume.accessModes, and use a storage class that supports it" }}
{{- end }}
{{- if and .Values.syncer.nodePermissions.enabled (not (.Files.Get "files/reboot.sh")) }}
{{- fail "syncer.nodePermissions.enabled: this version of the chart has no reboot script: set it to false" }}
{{- end }}
{{- range .Values.podDefaults.extraEnv }}
{{- if hasPrefix "SUNK_" .name }}
{{- fail (printf "podDefaults.extraEnv: %s is a setting of one service: put it into the settings of that service, without the prefix" .name) }}
{{- end }}
{{- end }}
{{- range $component, $service := dict "syncer" "SYNCER" "scheduler" "POD_SCHEDULER" "hookGateway" "HOOK_GATEWAY" "metricsExporter" "METRICS_EXPORTER" }}
{{- range $entry := (index $.Values $component).extraEnv | default list }}
{{- if hasPrefix "SUNK_" $entry.name }}
{{- fail (printf "%s.extraEnv: %s is a setting: put it into %s.settings, without SUNK_%s_" $component $entry.name $component $service) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "slurm.checkAccounting" -}}
{{- $external := .Values.accounting.external }}
{{- if and .Values.accounting.enabled $external.host (not $external.existingSecret) }}
{{- fail "accounting.external.existingSecret: is missing: create a Secret with the `password` of the user at accounting.external.host, and name it here" }}
{{- end }}
{{- if and .Values.accounting.backup.enabled (not .Values.accounting.enabled) }}
{{- fail "accounting.backup.enabled: there is no slurmdbd to back up: set accounting.enabled to true, or accounting.backup.enabled to false" }}
{{- end }}
{{- if and .Values.accounting.enforce (not .Values.accounting.enabled) }}
{{- fail "accounting.enforce: there are no associations without accounting: set accounting.enabled to true, or leave it empty" }}
{{- end }}
{{- end }}

{{- /* Slurm's daemons understand older ones, never newer: slurmdbd first, then slurmctld, then the rest. */ -}}
{{- define "slurm.checkVersions" -}}
{{- $ctld := include "slurm.version" (dict "root" . "values" .Values.controller) | int }}
{{- $dbd := include "slurm.version" (dict "root" . "values" .Values.accounting) | int }}
{{- if and $ctld $dbd .Values.accounting.enabled (lt $dbd $ctld) }}
{{- fail "accounting.image.tag: slurmdbd would be older than slurmctld, which it does not understand: upgrade it first, as docs/upgrade.md says" }}
{{- end }}
{{- $others := dict "rest" .Values.rest "login" .Values.login }}
{{- range $set := include "slurm.sets" . | fromJsonArray }}{{ $_ := set $others (printf "compute.nodes.%s" $set.name) $set.values }}{{ end }}
{{- range $path, $values := $others }}
{{- $other := include "slurm.version" (dict "root" $ "values" $values) | int }}
{{- if and $ctld (gt $other $ctld) }}
{{- fail (printf "%s.image.tag: would be newer than slurmctld, which does not understand it: upgrade slurmctld first, as docs/upgrade.md says" $path) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The release of a component's Slurm as a number, 2411; 0 where its tag is no release. Arguments: root, values. */ -}}
{{- define "slurm.version" -}}
{{- $tag := toString (dig "image" "tag" "" .values | default .root.Values.slurmImage.tag) -}}
{{ regexFind "^[0-9]{2}\\.[0-9]{2}" $tag | replace "." "" | default "0" }}
{{- end }}
