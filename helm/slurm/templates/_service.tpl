{{- /*
The Deployment of one of the four services. Arguments: root, values, service (its name in images and settings),
object (the name's last part), name (app.kubernetes.io/name), port (number of the port with metrics; 8080), ports (a list of
further ports), env (a dict), args (a list),
volumes (a list of {name, mountPath, source}), token (true: it speaks to Slurm),
submitters (numbers of the Slurm users as whom it submits jobs), checksUsers (true: it answers users of Slurm), account (true: it speaks to Kubernetes),
restart (text whose change restarts it: it reads a file of it once).
*/ -}}
{{- define "slurm.deployment" -}}
{{- $root := .root }}
{{- $values := .values }}
{{- $fullname := include "slurm.fullname" $root }}
{{- $prefix := printf "SUNK_%s" (.service | upper | replace "-" "_") }}
{{- $user := printf "%s-%s" .service $root.Values.clusterName }}
{{- $who := dict "root" $root "values" $values "name" .name "component" .service }}
{{- $port := .port | default 8080 }}
{{- $natsCa := include "slurm.natsCaSecret" $root }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $fullname }}-{{ .object }}
  labels:
    {{- include "slurm.labels" $who | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  replicas: {{ int $values.replicas }}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  selector:
    matchLabels:
      {{- include "slurm.selector" $who | nindent 6 }}
  template:
    metadata:
      {{- $scraped := ternary (dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString $port) "prometheus.io/path" "/metrics") dict $root.Values.podMonitor.annotations }}
      {{- $restart := dict }}
      {{- with .restart }}{{ $restart = dict "sunk.coreweave.com/restart" (sha256sum .) }}{{ end }}
      {{- include "slurm.podMetadata" (merge (dict "annotations" (merge $restart $scraped)) $who) | nindent 6 }}
    spec:
      {{- include "slurm.podPlacement" $who | nindent 6 }}
      {{- include "slurm.podSecurity" (dict "uid" 65532) | nindent 6 }}
      serviceAccountName: {{ $fullname }}-{{ .object }}
      automountServiceAccountToken: {{ .account | default false }}
      terminationGracePeriodSeconds: 30
      {{- if .token }}
      initContainers:
        # Beside the service, so that the service itself never sees the key.
        - name: token
          {{- include "slurm.serviceImage" (dict "root" $root "values" $values "name" .service) | nindent 10 }}
          restartPolicy: Always
          command: [python3, /scripts/token.py, /keys/jwt.key, /token/token, {{ $root.Values.syncer.slurmUser | quote }}, {{ $root.Values.keys.tokenSeconds | int | quote }}{{ with .submitters }}, /token/users.json{{ range . }}, {{ . | quote }}{{ end }}{{ end }}]
          startupProbe: {exec: {command: [test, -s, /token/token]}, periodSeconds: 1, failureThreshold: 60}
          {{- include "slurm.restricted" $root | nindent 10 }}
          resources:
            requests: {cpu: 5m, memory: 24Mi}
            limits: {memory: 64Mi}
          volumeMounts:
            - {name: scripts, mountPath: /scripts, readOnly: true}
            - {name: keys, mountPath: /keys, readOnly: true}
            - {name: token, mountPath: /token}
      {{- end }}
      {{- if .checksUsers }}
      initContainers:
        # Says whose a token of Slurm is. Beside the service, so that the service itself never sees the key.
        - name: token-checker
          {{- include "slurm.serviceImage" (dict "root" $root "values" $values "name" .service) | nindent 10 }}
          restartPolicy: Always
          command: [python3, -m, sunk_hook_gateway.token_checker, /keys/jwt.key, /run/users/socket]
          # Without probes: prologs do not wait for it, and a container that is killed takes the Pod out of the Service.
          {{- include "slurm.restricted" $root | nindent 10 }}
          resources:
            requests: {cpu: 5m, memory: 48Mi}
            limits: {memory: 128Mi}
          volumeMounts:
            - {name: keys, mountPath: /keys, readOnly: true}
            - {name: users, mountPath: /run/users}
      {{- end }}
      containers:
        - name: {{ .container | default .service }}
          {{- include "slurm.serviceImage" (dict "root" $root "values" $values "name" .service) | nindent 10 }}
          {{- with .args }}
          args: {{ toJson . }}
          {{- end }}
          env:
            {{- $env := dict "NATS_URL" (include "slurm.natsUrl" $root) "NATS_REPLICAS" (int $root.Values.nats.replicas) "NATS_USER" $user "NATS_PASSWORD_FILE" "/etc/sunk/nats/password" "CLUSTER" $root.Values.clusterName "HTTP_HOST" "0.0.0.0" "HTTP_PORT" $port }}
            {{- if $natsCa }}
            {{- $env = merge (dict "NATS_CA_FILE" "/etc/sunk/nats-ca/ca.crt") $env }}
            {{- end }}
            {{- if .token }}
            {{- $env = merge (dict "SLURM_URL" (include "slurm.restUrl" $root) "SLURM_TOKEN_FILE" "/run/slurm-token/token" "SLURM_USER" $root.Values.syncer.slurmUser) $env }}
            {{- if include "slurm.restTlsSecret" $root }}
            {{- $env = merge (dict "SLURM_CA_FILE" "/etc/sunk/rest-ca/ca.crt") $env }}
            {{- end }}
            {{- end }}
            {{- with $root.Values.tracing }}{{ if .endpoint }}
            {{- $env = merge (dict "TRACES_ENDPOINT" .endpoint "TRACES_RATIO" .ratio) $env }}
            {{- end }}{{ end }}
            {{- range $name, $value := merge (deepCopy ($values.settings | default dict)) (.env | default dict) $env }}
            - {name: {{ $prefix }}_{{ $name }}, value: {{ toString $value | quote }}}
            {{- end }}
            {{- include "slurm.extraEnv" $who | nindent 12 }}
          ports:
            - {name: metrics, containerPort: {{ $port }}}
            {{- range .ports }}
            - {{ toJson . }}
            {{- end }}
          startupProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 1, failureThreshold: 60}
          readinessProbe: {httpGet: {path: /readyz, port: metrics}, periodSeconds: 5, timeoutSeconds: 5}
          livenessProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
          {{- include "slurm.restricted" $root | nindent 10 }}
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          volumeMounts:
            - {name: nats, mountPath: /etc/sunk/nats, readOnly: true}
            {{- if $natsCa }}
            - {name: nats-ca, mountPath: /etc/sunk/nats-ca, readOnly: true}
            {{- end }}
            - {name: tmp, mountPath: /tmp}
            {{- if .token }}
            - {name: token, mountPath: /run/slurm-token, readOnly: true}
            {{- if include "slurm.restTlsSecret" $root }}
            - {name: rest-ca, mountPath: /etc/sunk/rest-ca, readOnly: true}
            {{- end }}
            {{- end }}
            {{- if .checksUsers }}
            - {name: users, mountPath: /run/users, readOnly: true}
            {{- end }}
            {{- range .volumes }}
            - {name: {{ .name }}, mountPath: {{ .mountPath }}, readOnly: true}
            {{- end }}
            {{- include "slurm.extraVolumeMounts" $who | nindent 12 }}
      volumes:
        - name: nats
          secret:
            secretName: {{ include "slurm.natsSecret" $root }}
            defaultMode: 0400
            items: [{key: {{ $user }}, path: password}]
        {{- with $natsCa }}
        - {name: nats-ca, secret: {secretName: {{ . }}, defaultMode: 0400, items: [{key: ca.crt, path: ca.crt}]}}
        {{- end }}
        - {name: tmp, emptyDir: {}}
        {{- if .checksUsers }}
        # Optional: prologs do not wait for it.
        - {name: keys, secret: {secretName: {{ include "slurm.keysSecret" $root }}, optional: true, defaultMode: 0400, items: [{key: jwt.key, path: jwt.key}]}}
        - {name: users, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
        {{- end }}
        {{- if .token }}
        - {name: scripts, configMap: {name: {{ $fullname }}-scripts, items: [{key: token.py, path: token.py}]}}
        - {name: keys, secret: {secretName: {{ include "slurm.keysSecret" $root }}, defaultMode: 0400, items: [{key: jwt.key, path: jwt.key}]}}
        - {name: token, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
        {{- with include "slurm.restTlsSecret" $root }}
        - {name: rest-ca, secret: {secretName: {{ . }}, defaultMode: 0400, items: [{key: ca.crt, path: ca.crt}]}}
        {{- end }}
        {{- end }}
        {{- range .volumes }}
        - {{ merge (dict "name" .name) .source | toJson }}
        {{- end }}
        {{- include "slurm.extraVolumes" $who | nindent 8 }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $fullname }}-{{ .object }}
  labels:
    {{- include "slurm.labels" $who | nindent 4 }}
  {{- include "slurm.accountAnnotations" $who | nindent 2 }}
automountServiceAccountToken: false
{{- include "slurm.pdb" (merge (dict "object" .object) $who) }}
{{- end }}

{{- /* Whether sshd of login Pods sees callers by their own addresses. */ -}}
{{- define "slurm.knowsCallers" -}}
{{- $service := .Values.login.service -}}
{{- if and (ne $service.type "ClusterIP") (eq $service.externalTrafficPolicy "Local") }}true{{ end }}
{{- end }}
