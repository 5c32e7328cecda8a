{{- /* slurm.conf. What flows rely on comes from values of its own, and extraConfig may not change it. */ -}}
{{- define "slurm.conf" -}}
{{- $name := include "slurm.fullname" . -}}
{{- $conf := .Values.slurmConfig -}}
ClusterName={{ .Values.clusterName }}
SlurmctldHost={{ $name }}-controller-0({{ $name }}-controller)
{{- if .Values.controller.backup.enabled }}
SlurmctldHost={{ $name }}-backup-0({{ $name }}-backup)
{{- end }}
SlurmctldPort=6817
SlurmdPort=6818
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/{{ .Values.auth.type }}
CredType={{ ternary "cred/munge" "auth/slurm" (eq .Values.auth.type "munge") }}
# What starts a job is signed when it is allocated, and has to outlive its prologs.
AuthInfo=ttl={{ include "slurm.credentialLife" . }},cred_expire={{ include "slurm.credentialLife" . }}
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/run/slurm-keys/jwt.key
StateSaveLocation=/var/spool/slurmctld/state
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldParameters=enable_configless{{ if .Values.syncer.nodePermissions.enabled }},reboot_from_controller{{ end }}{{ with $conf.slurmctldParameters }},{{ . }}{{ end }}
ProctrackType={{ $conf.proctrackType }}
TaskPlugin={{ $conf.taskPlugin }}
JobAcctGatherType={{ $conf.jobAcctGatherType }}
MpiDefault=none
PropagateResourceLimits=NONE
# A node has the CPUs that its Pod has, not the machine's.
SlurmdParameters=config_overrides{{ with $conf.slurmdParameters }},{{ . }}{{ end }}
SelectType=select/cons_tres
SelectTypeParameters={{ $conf.selectTypeParameters }}{{ if and (eq .Values.scheduler.packing "spread") (not (contains "CR_LLN" $conf.selectTypeParameters)) }},CR_LLN{{ end }}
DefMemPerCPU={{ include "slurm.defMemPerCPU" . }}
# Only both words make a batch script wait for the locks of all its nodes.
PrologFlags=Alloc,{{ with $conf.jobContainerConfig }}Contain,{{ end }}DeferBatch
Prolog=/etc/sunk/scripts/prolog
Epilog=/etc/sunk/scripts/epilog
{{- if include "slurm.hasScratch" . }}
TaskProlog=/etc/sunk/scripts/task-prolog
{{- end }}
{{- range $kind := include "slurm.controllerHooks" . | fromJsonArray }}
{{ title $kind }}=/etc/sunk/scripts/{{ kebabcase $kind }}
{{- end }}
PrologEpilogTimeout={{ include "slurm.prologLimit" . }}
# Each node registers every 20th ping, and a batch job that its slurmd does not have by then is requeued as NODE_FAIL: a lock takes longer than the 10 s that are Slurm's own.
BatchStartTimeout={{ include "slurm.credentialLife" . }}
KillWait={{ int $conf.killWait }}
SlurmctldTimeout={{ int $conf.slurmctldTimeout }}
SlurmdTimeout={{ int $conf.slurmdTimeout }}
ResumeTimeout={{ int $conf.resumeTimeout }}
ReturnToService={{ int $conf.returnToService }}
InactiveLimit={{ int $conf.inactiveLimit }}
MessageTimeout={{ int $conf.messageTimeout }}
UnkillableStepTimeout={{ int $conf.unkillableStepTimeout }}
MaxJobCount={{ int $conf.maxJobCount }}
MaxArraySize={{ int $conf.maxArraySize }}
SchedulerParameters={{ include "slurm.schedulerParameters" . }}
{{- if ne $conf.preemption "none" }}
PreemptType=preempt/{{ ternary "qos" "partition_prio" (eq $conf.preemption "qos") }}
PreemptMode={{ $conf.preemptMode }}
# Else a batch script hears nothing while its grace time runs.
PreemptParameters=send_user_signal
{{- end }}
{{- range $factor, $weight := $conf.priority }}
{{- with int $weight }}
PriorityWeight{{ get (dict "age" "Age" "fairshare" "Fairshare" "jobSize" "JobSize" "partition" "Partition" "qos" "QOS") $factor }}={{ . }}
{{- end }}
{{- end }}
TopologyPlugin={{ (include "slurm.topology" . | fromJson).plugin }}
GresTypes=gpu
MaxNodeCount={{ int $conf.maxNodeCount }}
{{- if .Values.syncer.nodePermissions.enabled }}
RebootProgram=/etc/sunk/scripts/reboot
{{- end }}
{{- if .Values.accounting.enabled }}
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={{ $name }}-accounting
{{- if .Values.accounting.backup.enabled }}
AccountingStorageBackupHost={{ $name }}-accounting-backup
{{- end }}
AccountingStoragePort=6819
AccountingStoreFlags=job_comment,job_extra
MaxDBDMsgs={{ int .Values.accounting.maxMessages }}
AccountingStorageTRES=gres/gpu
{{- with .Values.accounting.enforce }}
AccountingStorageEnforce={{ . }}
{{- end }}
{{- end }}
{{- with $conf.extraConfig }}
{{ trim . }}
{{- end }}
{{- range $set := include "slurm.sets" . | fromJsonArray }}
NodeSet={{ $set.name }} Feature={{ $set.name }}
{{- if $.Values.compute.autoPartition.enabled }}
{{- $partition := $.Values.compute.autoPartition }}
PartitionName={{ $set.name }} Nodes={{ $set.name }} PriorityTier={{ int $partition.priorityTier }} MaxTime={{ $partition.maxTime }}{{ with $partition.defaultTime }} DefaultTime={{ . }}{{ end }}{{ with $partition.preemptMode }} PreemptMode={{ . }}{{ end }}{{ with int $partition.graceTime }} GraceTime={{ . }}{{ end }}{{ if not (int $conf.defMemPerCPU) }}{{ with include "slurm.memoryPerCPU" (dict "root" $ "values" $set.values) }} DefMemPerCPU={{ . }}{{ end }}{{ end }} State=UP
{{- end }}
{{- end }}
{{ trim .Values.compute.partitions }}
{{- end }}

{{- /* Which file slurmctld has, and the plugin: a JSON object. The sunk release is asked only for what the values leave open. */ -}}
{{- define "slurm.topology" -}}
{{- $conf := .Values.slurmConfig -}}
{{- $kind := "" -}}
{{- $before := dict -}}
{{- if not (or $conf.topologyFile $conf.topologyConfigMap (ne $conf.topologyPlugin "topology/default")) }}
{{- with lookup "apps/v1" "Deployment" .Values.sunk.namespace .Values.sunk.controllerName }}
{{- range (first .spec.template.spec.containers).env }}{{ if eq .name "SUNK_NODESET_CONTROLLER_TOPOLOGY" }}{{ $kind = .value | default "" }}{{ end }}{{ end }}
{{- end }}
{{- $before = lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-controller" (include "slurm.fullname" .)) | default dict }}
{{- end -}}
{{ include "slurm.topologyFor" (dict "root" . "kind" $kind "before" $before) }}
{{- end }}

{{- /*
A slurmctld that has topology.yaml keeps it: without it, one whose nodes have places there ends (ADR 0030). Arguments: root,
kind (what the sunk release generates, where the values leave the choice open), before (the StatefulSet of slurmctld that is there).
*/ -}}
{{- define "slurm.topologyFor" -}}
{{- $conf := .root.Values.slurmConfig -}}
{{- $found := dict "file" ($conf.topologyFile | default "topology.conf") "plugin" $conf.topologyPlugin -}}
{{- $keeps := false -}}
{{- range dig "spec" "template" "spec" "volumes" list .before }}
{{- range dig "projected" "sources" list . }}
{{- range dig "configMap" "items" list . }}{{ if eq .key "topology.yaml" }}{{ $keeps = true }}{{ end }}{{ end }}
{{- end }}
{{- end -}}
{{- if or $keeps (eq .kind "both") }}
{{- if or $keeps (regexMatch "^(25\\.(05|11)|2[6-9]\\.|[3-9][0-9]\\.)" (toString .root.Values.slurmImage.tag)) }}
{{- $_ := set $found "file" "topology.yaml" }}
{{- else }}
{{- $_ := set $found "plugin" "topology/tree" }}
{{- end }}
{{- end -}}
{{ toJson $found }}
{{- end }}

{{- /* Memory in MiB for each CPU of a job that names none, in partitions that do not say: what the smallest of the nodes has for each of its CPUs. */ -}}
{{- define "slurm.defMemPerCPU" -}}
{{- $least := 0 -}}
{{- range include "slurm.sets" . | fromJsonArray -}}
{{- $known := include "slurm.memoryPerCPU" (dict "root" $ "values" .values) | int -}}
{{- if and $known (or (not $least) (lt $known $least)) }}{{ $least = $known }}{{ end -}}
{{- end -}}
{{ int .Values.slurmConfig.defMemPerCPU | default $least | default 2000 }}
{{- end }}

{{- /* Memory in MiB that a set's nodes have for each of their CPUs, as start-slurmd tells Slurm of both; nothing where only their Nodes know. Arguments: root, values. */ -}}
{{- define "slurm.memoryPerCPU" -}}
{{- $limits := dig "resources" "limits" (dict) .values -}}
{{- $cpus := dig "slurm" "cpus" 0 .values | int -}}
{{- $limit := $limits.cpu | toString -}}
{{- if and (not $cpus) (regexMatch "^[0-9]+m?$" $limit) -}}
{{- $cpus = hasSuffix "m" $limit | ternary (div (add 999 (trimSuffix "m" $limit | int64)) 1000) (trimSuffix "m" $limit | int64) | int -}}
{{- end -}}
{{- $memory := dig "slurm" "memory" 0 .values | int64 -}}
{{- $bytes := include "slurm.bytes" $limits.memory | trim -}}
{{- if and (not $memory) (regexMatch "^[0-9]+$" $bytes) -}}
{{- $memory = sub (div (int64 $bytes) 1048576) (dig "reservedMemory" .root.Values.compute.reservedMemory .values | int64) -}}
{{- end -}}
{{- if and (gt $cpus 0) (gt $memory 0) }}{{ max 1 (div $memory $cpus) }}{{ end -}}
{{- end }}

{{- /* Ours, each unless the values have the word; then theirs. */ -}}
{{- define "slurm.schedulerParameters" -}}
{{- $given := compact (splitList "," (nospace .Values.slurmConfig.schedulerParameters)) -}}
{{- $names := list -}}
{{- range $given }}{{ $names = append $names (regexFind "^[^=]+" .) }}{{ end -}}
{{- $all := list -}}
{{- range list "batch_sched_delay=0" "sched_interval=5" "bf_interval=1" "sched_min_interval=0" "default_queue_depth=1000" "bf_continue" "nohold_on_prolog_fail" -}}
{{- if not (has (regexFind "^[^=]+" .) $names) }}{{ $all = append $all . }}{{ end -}}
{{- end -}}
{{ join "," (concat $all $given) }}
{{- end }}

{{- /* Seconds after which Slurm ends a prolog: after its wait for the lock, and the cluster's own scripts. */ -}}
{{- define "slurm.prologLimit" -}}
{{ add (int .Values.slurmConfig.hookDeadline) (int .Values.hooks.timeoutSeconds) 30 }}
{{- end }}

{{- /* Seconds for which what starts a job is good: from its allocation to after the longest prolog. A requeued job waits that long too. */ -}}
{{- define "slurm.credentialLife" -}}
{{ add (include "slurm.prologLimit" . | int) 30 }}
{{- end }}

{{- /* Which of slurmctld's own hooks have scripts, as a JSON list. */ -}}
{{- define "slurm.controllerHooks" -}}
{{- $kinds := list -}}
{{- range list "prologSlurmctld" "epilogSlurmctld" }}{{ if index $.Values.hooks . }}{{ $kinds = append $kinds . }}{{ end }}{{ end -}}
{{ toJson $kinds }}
{{- end }}

{{- define "slurm.gresConf" -}}
{{- if .Values.slurmConfig.gresConfig -}}
{{ trim .Values.slurmConfig.gresConfig }}
{{- else if include "slurm.hasGpus" . -}}
AutoDetect=nvidia
{{- end }}
{{- end }}

{{- define "slurm.hasScratch" -}}
{{- range include "slurm.sets" . | fromJsonArray }}{{ if dig "scratch" "size" $.Values.compute.scratch.size .values }}true{{ end }}{{ end }}
{{- end }}

{{- define "slurm.hasGpus" -}}
{{- range include "slurm.sets" . | fromJsonArray }}{{ if ne (toString .values.gresGpu) "none" }}true{{ end }}{{ end }}
{{- end }}

{{- /* TYPE:COUNT of the values; empty where the Nodes say, or where there are none. Takes the values of a set. */ -}}
{{- define "slurm.givenGpus" -}}
{{- if ne (toString .gresGpu) "none" }}{{ .gresGpu | default "" }}{{ end }}
{{- end }}

{{- /* Whether the GPUs of a set are read of its Nodes: not beside a gres.conf of the values, which may not have them. Arguments: root, values. */ -}}
{{- define "slurm.readsGpus" -}}
{{- if not (or .values.gresGpu .root.Values.slurmConfig.gresConfig) }}true{{ end }}
{{- end }}

{{- /* Those lines of slurm.conf that a reconfigure does not change: slurm.conf(5). They restart slurmctld. */ -}}
{{- define "slurm.restartLines" -}}
{{- $keys := "(?i)^(AccountingStorageType|AuthType|AuthInfo|AuthAlt.*|ClusterName|CredType|JobAcctGatherType|JobContainerType|MCSPlugin|MaxNodeCount|NamespaceType|PluginDir|PreemptType|PrepPlugins|PriorityType|ProctrackType|SchedulerType|SelectType|SlurmctldHost|SlurmctldPort|SlurmdPort|StateSaveLocation|SwitchType|TaskPlugin|TopologyPlugin)\\s*=" -}}
{{- range splitList "\n" (include "slurm.conf" .) }}{{ if regexMatch $keys . }}{{ . }};{{ end }}{{ end }}
{{- end }}

{{- /* Which database it is. */ -}}
{{- define "slurm.database" -}}
{{- $external := .Values.accounting.external -}}
StorageHost={{ $external.host | default (printf "%s-mariadb" (include "slurm.fullname" .)) }}
StoragePort={{ ternary (int $external.port) 3306 (ne $external.host "") }}
StorageLoc={{ ternary $external.database "slurm_acct_db" (ne $external.host "") }}
{{- end }}

{{- define "slurm.dbdConf" -}}
{{- $external := .Values.accounting.external -}}
DbdHost={{ include "slurm.fullname" . }}-accounting-0
DbdAddr=0.0.0.0
DbdPort=6819
{{- if .Values.accounting.backup.enabled }}
DbdBackupHost={{ include "slurm.fullname" . }}-accounting-backup-0
# So the backup sees after 25 s that the Node of the first one is dead.
CommunicationParameters=keepalivetime=10,keepaliveinterval=5,keepaliveprobes=3
{{- end }}
SlurmUser=slurm
AuthType=auth/{{ .Values.auth.type }}
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/run/slurm-keys/jwt.key
PidFile=/run/slurmdbd/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageUser={{ ternary $external.user "slurm" (ne $external.host "") }}
{{ include "slurm.database" . }}
{{- with .Values.accounting.extraConfig }}
{{ trim . }}
{{- end }}
{{- end }}
