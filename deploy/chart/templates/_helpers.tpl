{{/* What the names of all objects begin with: another release has other names. */}}
{{- define "coterie.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- end -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{/* The namespace of what Prometheus and Grafana read. */}}
{{- define "coterie.monitoringNamespace" -}}
{{- .Values.monitoring.namespace | default .Release.Namespace -}}
{{- end }}

{{/* Annotations of pods by which a Prometheus without the operator finds them, with their `port`. */}}
{{- define "coterie.scrapeAnnotations" -}}
{{- if .root.Values.monitoring.scrapeAnnotations -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- end -}}
{{- end }}

{{/* Labels of every object. None of them is in a selector or in a pod. */}}
{{- define "coterie.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: coterie
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Labels of the workload `name`, of its pods too. */}}
{{- define "coterie.workloadLabels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: coterie
{{- end }}

{{/* Whether pods are placed: "true" or nothing. */}}
{{- define "coterie.schedules" -}}
{{- if ne .Values.mode "audit" }}true{{ end -}}
{{- end }}

{{/* Whether scheduler and extender are pods of the release: "true" or nothing. */}}
{{- define "coterie.hasScheduler" -}}
{{- if has .Values.mode (list "second-scheduler" "service") }}true{{ end -}}
{{- end }}

{{/* Who the extender is to the API server. A static pod has no service account: there it is a user. */}}
{{- define "coterie.extenderUser" -}}
{{- if eq .Values.mode "kubeadm" -}}
{{ include "coterie.extender" . }}
{{- else -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "coterie.extender" . }}
{{- end -}}
{{- end }}

{{/*
How containers get their GPUs. A reporter gives them none, so there `cdi-cri` and the driver's root
have no effect, and its own container gets its GPUs by `envvar` where not by `volume-mounts`.
*/}}
{{- define "coterie.deviceListStrategy" -}}
{{- $given := .Values.plugin.deviceListStrategy -}}
{{- if eq .Values.plugin.mode "reporter" -}}
{{- eq $given "volume-mounts" | ternary "volume-mounts" "envvar" -}}
{{- else -}}
{{- $given | default (eq .Values.plugin.profile "gpu-operator" | ternary "cdi-cri" "envvar") -}}
{{- end -}}
{{- end }}

{{/* Root of the driver's files on the node. */}}
{{- define "coterie.driverRoot" -}}
{{- .Values.plugin.driverRoot | default (eq .Values.plugin.profile "gpu-operator" | ternary "/run/nvidia/driver" "/") -}}
{{- end }}

{{/* RuntimeClass of pods that must see GPUs, or nothing. */}}
{{- define "coterie.runtimeClassName" -}}
{{- .Values.plugin.runtimeClassName | default (eq .Values.plugin.profile "gpu-operator" | ternary "nvidia" "") -}}
{{- end }}

{{/* The name that GPU pods give in schedulerName. */}}
{{- define "coterie.schedulerName" -}}
{{- .Values.schedulerName.name | default (printf "%s-scheduler" (include "coterie.fullname" .)) -}}
{{- end }}

{{/* The Lease of kube-scheduler, and the names of what belongs to it. */}}
{{- define "coterie.scheduler" -}}
{{- include "coterie.fullname" . -}}-scheduler
{{- end }}
{{- define "coterie.extender" -}}
{{- include "coterie.fullname" . -}}-extender
{{- end }}
{{- define "coterie.plugin" -}}
{{- include "coterie.fullname" . -}}-plugin
{{- end }}

{{/*
How many plugins a rollout replaces at once. From reporters to device plugins all of them: where
NVIDIA's plugin is off already, a node offers no GPU until its reporter is replaced.
*/}}
{{- define "coterie.pluginMaxUnavailable" -}}
{{- $reports := false -}}
{{- if eq .Values.plugin.mode "device-plugin" -}}
{{- $live := lookup "apps/v1" "DaemonSet" .Values.node.namespace (include "coterie.plugin" .) -}}
{{- range dig "spec" "template" "spec" "containers" list $live -}}
{{- if has "--mode=reporter" (.args | default list) }}{{ $reports = true }}{{ end -}}
{{- end -}}
{{- end -}}
{{- or $reports .Values.plugin.clean | ternary "100%" .Values.plugin.maxUnavailable -}}
{{- end }}

{{/* The extender's Service in mode `service`, as kube-scheduler calls it. */}}
{{- define "coterie.extenderHost" -}}
{{- include "coterie.extender" . -}}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* Where the extender's pods are, and so the Role of those who may read: on kubeadm with all others. */}}
{{- define "coterie.readerNamespace" -}}
{{- eq .Values.mode "kubeadm" | ternary "kube-system" .Release.Namespace -}}
{{- end }}

{{/* A list of CEL: ['a', 'b']. */}}
{{- define "coterie.celList" -}}
['{{ join "', '" . }}']
{{- end }}

{{/* An image of ours: `repository` with the registry that was set, by digest or tag. */}}
{{- define "coterie.image" -}}
{{- $values := .root.Values -}}
{{- $registry := $values.global.imageRegistry | default $values.image.registry -}}
{{- $name := printf "%s/%s" ($registry | trimSuffix "/") .image.repository -}}
{{- if .image.digest -}}
{{ $name }}@{{ .image.digest }}
{{- else -}}
{{ $name }}:{{ $values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* The API server's version as kube-scheduler's images are tagged: without a vendor's suffix. */}}
{{- define "coterie.kubeVersion" -}}
{{- regexFind "^v[0-9]+[.][0-9]+[.][0-9]+(-(alpha|beta|rc)[.][0-9]+)?" .Capabilities.KubeVersion.Version -}}
{{- end }}

{{/* kube-scheduler's image. */}}
{{- define "coterie.schedulerImage" -}}
{{- $image := .Values.scheduler.image -}}
{{- $name := printf "%s/%s" (.Values.global.imageRegistry | default $image.registry | trimSuffix "/") $image.repository -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ $image.tag | default (include "coterie.kubeVersion" .) }}
{{- end -}}
{{- end }}

{{/* The field imagePullSecrets, or nothing. */}}
{{- define "coterie.pullSecrets" -}}
{{- with concat .Values.image.pullSecrets (.Values.global.imagePullSecrets | default list) -}}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end -}}
{{- end }}

{{/* A setting's value as an environment variable has it: whole numbers without an exponent. */}}
{{- define "coterie.settingText" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{/* Settings by name as environment variables with a prefix: `settings`, `prefix`. */}}
{{- define "coterie.settingsEnv" -}}
{{- $prefix := .prefix -}}
{{- range $name, $value := .settings }}
- name: {{ $prefix }}{{ upper $name }}
  value: {{ include "coterie.settingText" $value | quote }}
{{- end }}
{{- end }}

{{/* What Pod Security at `restricted` wants of a pod, and the user; OpenShift has its own range. */}}
{{- define "coterie.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  {{- if not .Values.openshift }}
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- end }}
{{- define "coterie.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}
