{{- /*
SPANK plugins from images: init containers copy the libraries to a volume of the Pod, and write the lines of
plugstack.conf next to them. The lines belong to the Pod, as the libraries do: in a rolling update a Pod of before
never has the lines of libraries that it lacks. All of it is empty without `compute.plugins`.
*/ -}}
{{- define "slurm.pluginsPath" -}}/etc/sunk/plugins{{- end }}

{{- /* The lines, one a library, in the order of the values. */ -}}
{{- define "slurm.pluginLines" -}}
{{- range $plugin := .Values.compute.plugins }}
{{- range $plugin.libraries }}
{{ ternary "required" "optional" (dig "required" true .) }} {{ include "slurm.pluginsPath" $ }}/{{ $plugin.name }}/{{ base .path }}{{ range .args }} {{ . }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Items of initContainers. Arguments: root, values (whose Slurm image writes the lines). */ -}}
{{- define "slurm.pluginContainers" -}}
{{- $root := .root }}
{{- range $plugin := $root.Values.compute.plugins }}
- name: plugin-{{ $plugin.name }}
  {{- include "slurm.image" (dict "root" $root "image" $plugin.image "default" (dict "registry" "" "pullPolicy" "IfNotPresent") "name" "") | nindent 2 }}
  # A new file each time, as a process may have loaded the one of before. Users load it too, by srun.
  command:
    - sh
    - -ec
    - |
      folder=$1; shift
      mkdir -p "$folder"
      for library in "$@"; do
          copy="$folder/${library##*/}"
          cp -L "$library" "$copy.new"
          chmod 755 "$folder" "$copy.new"
          mv "$copy.new" "$copy"
      done
    - sh
    - /plugins/{{ $plugin.name }}
    {{- range $plugin.libraries }}
    - {{ .path | quote }}
    {{- end }}
  {{- include "slurm.restricted" $ | nindent 2 }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
  volumeMounts:
    - {name: plugins, mountPath: /plugins}
{{- end }}
{{- if $root.Values.compute.plugins }}
- name: plugstack
  {{- include "slurm.slurmImage" . | nindent 2 }}
  args: [bash, -ec, 'printf "%s\n" "$LINES_OF_PLUGINS" >/plugins/plugstack.conf; chmod 644 /plugins/plugstack.conf']
  env:
    - {name: LINES_OF_PLUGINS, value: {{ include "slurm.pluginLines" $root | trim | quote }}}
  {{- include "slurm.restricted" . | nindent 2 }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
  volumeMounts:
    - {name: plugins, mountPath: /plugins}
{{- end }}
{{- end }}

{{- /* For the container that loads plugins. Arguments: root. */ -}}
{{- define "slurm.pluginMount" -}}
{{- if .root.Values.compute.plugins }}
- {name: plugins, mountPath: {{ include "slurm.pluginsPath" .root }}, readOnly: true}
{{- end }}
{{- end }}

{{- /* Arguments: root. */ -}}
{{- define "slurm.pluginVolumes" -}}
{{- if .root.Values.compute.plugins }}
- {name: plugins, emptyDir: {}}
{{- end }}
{{- end }}

{{- /* plugstack.conf of the cluster: the values' own lines, then those of the Pod that reads it. */ -}}
{{- define "slurm.plugstack" -}}
{{- with .Values.slurmConfig.plugstackConfig }}
{{ trim . }}
{{- end }}
{{- if .Values.compute.plugins }}
include {{ include "slurm.pluginsPath" . }}/plugstack.conf
{{- end }}
{{- end }}

{{- define "slurm.checkPlugins" -}}
{{- $names := list }}
{{- range $plugin := .Values.compute.plugins }}
{{- if has $plugin.name $names }}
{{- fail (printf "compute.plugins: two plugins have the name %q: give each a different name" $plugin.name) }}
{{- end }}
{{- $names = append $names $plugin.name }}
{{- $files := list }}
{{- range $plugin.libraries }}
{{- if has (base .path) $files }}
{{- fail (printf "compute.plugins: %s has two libraries with the file name %q: put one into a plugin of its own" $plugin.name (base .path)) }}
{{- end }}
{{- $files = append $files (base .path) }}
{{- end }}
{{- end }}
{{- end }}
