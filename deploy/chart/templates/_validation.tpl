{{/*
Combinations of values that each are allowed and together are wrong. Each fault is one line: which
value, what is wrong with it, what to do. All are said at once.
*/}}
{{- define "coterie.validate" -}}
{{- $faults := concat (include "coterie.imageFaults" . | fromYamlArray) (include "coterie.modeFaults" . | fromYamlArray) (include "coterie.versionFaults" . | fromYamlArray) (include "coterie.pluginFaults" . | fromYamlArray) (include "coterie.monitoringFaults" . | fromYamlArray) (include "coterie.otherPluginFaults" . | fromYamlArray) (include "coterie.otherReleaseFaults" . | fromYamlArray) -}}
{{- if $faults -}}
{{- fail (join "\n" (prepend $faults "the values cannot be installed:")) -}}
{{- end -}}
{{- end }}

{{- define "coterie.imageFaults" -}}
{{- $registry := .Values.global.imageRegistry | default .Values.image.registry -}}
{{- $host := $registry | splitList "/" | first | default "" -}}
{{- if not $registry }}
- "image.registry is not set: the project publishes no image, and a name without a registry would be pulled from a public one, where anyone may own it. Build and push the images (docs/install.md), then set image.registry to where they are, for example registry.example"
{{- else if not (or (contains "." $host) (contains ":" $host) (eq $host "localhost")) }}
- {{ printf "image.registry is %q, whose first part %q is no host: it would be pulled from a public registry. Begin it with a registry's host, for example registry.example/%s" $registry $host $registry | quote }}
{{- end }}
{{- if and (not .Values.image.tag) (eq .Chart.AppVersion "0.0.0") }}
{{- $unnamed := list -}}
{{- if and .Values.plugin.enabled (not .Values.plugin.image.digest) }}{{ $unnamed = append $unnamed "plugin" }}{{ end -}}
{{- if and (include "coterie.hasScheduler" .) (not .Values.extender.image.digest) }}{{ $unnamed = append $unnamed "extender" }}{{ end -}}
{{- if $unnamed }}
- "image.tag is not set: this chart is of a checkout, which has no version. Set image.tag to the tag that you pushed the images under, or {{ join ".image.digest and " $unnamed }}.image.digest"
{{- end }}
{{- end }}
{{- end }}

{{- define "coterie.modeFaults" -}}
{{- if include "coterie.schedules" . }}
{{- if eq .Values.mode "second-scheduler" }}
{{- if or .Values.extender.tlsSecret .Values.scheduler.tlsSecret }}
- "extender.tlsSecret or scheduler.tlsSecret is set in mode second-scheduler, where the extender is called on the pod's own loopback without TLS: leave them out, or set mode to service"
{{- end }}
{{- end }}
{{- if and .Values.extender.readApi.service .Values.networkPolicy.enabled (not .Values.extender.readApi.proxyNamespace) }}
- "extender.readApi.proxyNamespace is not set beside extender.readApi.service, and the network policy would let no proxy in: set the namespace of the proxy that authenticates"
{{- end }}
{{- if and .Values.extender.readApi.proxyNamespace (not .Values.extender.readApi.service) }}
- "extender.readApi.proxyNamespace is set without extender.readApi.service: there is no Service that a proxy could call. Set it to true, or leave the namespace out"
{{- end }}
{{- if and .Values.extender.readApi.hosts (not .Values.extender.readApi.service) }}
- "extender.readApi.hosts is set without extender.readApi.service: a port-forward calls by address or localhost. Set it to true, or leave the hosts out"
{{- end }}
{{- range .Values.extender.readApi.readers }}
{{- if and (eq .kind "ServiceAccount") (not .namespace) }}
- {{ printf "extender.readApi.readers has ServiceAccount %s without its namespace: set it beside kind and name" .name | quote }}
{{- end }}
{{- if and (ne .kind "ServiceAccount") .namespace }}
- {{ printf "extender.readApi.readers has %s %s with a namespace, which only a ServiceAccount has: leave it out" .kind .name | quote }}
{{- end }}
{{- end }}
{{- if eq (include "coterie.schedulerName" .) "default-scheduler" }}
- "schedulerName.name is default-scheduler, which is the cluster's own scheduler: choose another name"
{{- end }}
{{- if and (eq .Values.mode "service") (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "coterie.extender" .))) }}
- {{ printf "%s cannot be the name of the extender's Service: in mode service the release's name begins with a letter and has lower-case letters, digits and hyphens alone. Set fullnameOverride, for example to coterie" (include "coterie.extender" . | quote) | quote }}
{{- end }}
{{- if eq .Values.mode "kubeadm" }}
{{- if .Values.extender.readApi.service }}
- "extender.readApi.service is true in mode kubeadm, whose extenders are static pods: reach them by a port-forward, and leave it out"
{{- end }}
{{- if .Values.extender.settings }}
- "extender.settings is set in mode kubeadm, whose extenders are static pods: set the variables in their patch (deploy/kubeadm/patches), and leave it out"
{{- end }}
{{- end }}
{{- $own := include "coterie.extenderEnv" . | fromYamlArray -}}
{{- include "coterie.settingFaults" (dict "value" "extender.settings" "prefix" "COTERIE_EXTENDER_" "settings" .Values.extender.settings "own" $own) }}
{{- else }}
{{- if .Values.extender.readApi.service }}
- "extender.readApi.service is true in mode audit, which has no extender. Set mode to second-scheduler or service"
{{- end }}
{{- if .Values.extender.readApi.readers }}
- "extender.readApi.readers is set in mode audit, which has no extender. Set mode to second-scheduler or service, or leave the readers out"
{{- end }}
{{- if not .Values.plugin.enabled }}
- "plugin.enabled is false in mode audit, which is the node plugin alone: nothing would be installed. Set mode to second-scheduler or service"
{{- end }}
{{- if eq .Values.plugin.mode "device-plugin" }}
- "plugin.mode is device-plugin in mode audit, which has no effect on scheduling: a second plugin of the GPUs would disconnect NVIDIA's. Set mode to second-scheduler or service, or leave plugin.mode out"
{{- end }}
{{- if .Values.schedulerName.inject }}
- "schedulerName.inject is true in mode audit, which has no scheduler: GPU pods would wait for ever. Set mode to second-scheduler or service first"
{{- end }}
{{- if ne .Values.schedulerName.require "none" }}
- "schedulerName.require is {{ .Values.schedulerName.require }} in mode audit, which has no scheduler that pods could name. Set mode to second-scheduler or service first"
{{- end }}
{{- end }}
{{- end }}

{{- define "coterie.versionFaults" -}}
{{- if include "coterie.schedules" . }}
{{- $cluster := semver (include "coterie.kubeVersion" .) -}}
{{- $tag := .Values.scheduler.image.tag -}}
{{- if and $tag (include "coterie.hasScheduler" .) }}
{{- if not (regexMatch "^v[0-9]+[.][0-9]+[.][0-9]+" $tag) }}
- {{ printf "scheduler.image.tag is %q, which says no version of Kubernetes: expected one such as %s, or scheduler.image.digest" $tag (include "coterie.kubeVersion" .) | quote }}
{{- else }}
{{- $minor := regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" $tag | semver -}}
{{- if or (ne $minor.Major $cluster.Major) (gt $minor.Minor $cluster.Minor) (lt (add $minor.Minor 1) $cluster.Minor) }}
- {{ printf "scheduler.image.tag is %s and the API server is %s: kube-scheduler may be of the same minor version or of the one before. Leave the tag out to follow the API server" $tag .Capabilities.KubeVersion.Version | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.schedulerName.inject (not (include "coterie.mutatingPolicyVersion" .)) }}
- "schedulerName.inject is true, and this API server ({{ .Capabilities.KubeVersion.Version }}) does not serve MutatingAdmissionPolicy: it does from 1.36 on, or where the feature gate MutatingAdmissionPolicy and admissionregistration.k8s.io/v1beta1 are switched on. Set schedulerName.require to warn or deny in its place, or use the Kyverno policy in docs/install.md"
{{- end }}
{{- end }}
{{- end }}

{{/* The API version of MutatingAdmissionPolicy here: v1 from 1.36 on, before v1beta1 where it is served. */}}
{{- define "coterie.mutatingPolicyVersion" -}}
{{- if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}
admissionregistration.k8s.io/v1
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" -}}
admissionregistration.k8s.io/v1beta1
{{- end -}}
{{- end }}

{{- define "coterie.pluginFaults" -}}
{{- if .Values.plugin.enabled }}
{{- $plugin := .Values.plugin -}}
{{- $isReporter := eq .Values.plugin.mode "reporter" -}}
{{- $strategy := include "coterie.deviceListStrategy" . -}}
{{- if eq .Values.node.namespace .Release.Namespace }}
- "node.namespace is the release's own namespace {{ .Release.Namespace }}: the node plugin mounts folders of the host, which Pod Security allows at privileged alone, and all other pods meet restricted. Choose another one"
{{- end }}
{{- if and $plugin.kubelet.insecure (or $plugin.kubelet.caConfigMap $plugin.kubelet.serverName) }}
- "plugin.kubelet.insecure is true beside plugin.kubelet.caConfigMap or serverName: the kubelet's certificate is either checked or not"
{{- end }}
{{- if eq $plugin.profile "simulated" }}
{{- range $name := list "deviceListStrategy" "driverRoot" "runtimeClassName" "passDeviceSpecs" }}
{{- if index $plugin $name }}
- "plugin.{{ $name }} is set with plugin.profile simulated, whose nodes have no GPU and no driver: leave it out"
{{- end }}
{{- end }}
{{- if ne $plugin.migStrategy "none" }}
- "plugin.migStrategy is {{ $plugin.migStrategy }} with plugin.profile simulated, whose nodes have no GPU and no driver: leave it out"
{{- end }}
{{- if and $isReporter (include "coterie.schedules" .) }}
- "plugin.mode is reporter with plugin.profile simulated: no device plugin offers these GPUs then, and pods that request them wait for ever. Set plugin.mode to device-plugin"
{{- end }}
{{- if $plugin.onlyLabelledNodes }}
- "plugin.onlyLabelledNodes is true with plugin.profile simulated, which has a label of its own: label nodes coterie.gpu/simulated=true, and leave it out"
{{- end }}
{{- else }}
{{- if and (eq $plugin.profile "gpu-operator") (not $isReporter) (ne $strategy "cdi-cri") }}
- "plugin.deviceListStrategy is {{ $strategy }} with plugin.profile gpu-operator, whose default runtime gives containers GPUs by CDI alone: leave it out, or set plugin.profile to nvidia-device-plugin"
{{- end }}
{{- if and $isReporter $plugin.passDeviceSpecs }}
- "plugin.passDeviceSpecs is true for a reporter, which gives containers nothing: leave it out"
{{- end }}
{{- if and $plugin.driverRoot (not $isReporter) (ne $strategy "cdi-cri") }}
- "plugin.driverRoot is set, and plugin.deviceListStrategy is {{ $strategy }}: only cdi-cri needs the driver's files. Leave it out, or set plugin.deviceListStrategy to cdi-cri"
{{- end }}
{{- end }}
{{- range $value, $port := dict "plugin.settings.metrics_port" (get (default dict $plugin.settings) "metrics_port") "plugin.env.COTERIE_PLUGIN_METRICS_PORT" (get (default dict $plugin.env) "COTERIE_PLUGIN_METRICS_PORT") }}
{{- if and (toString $port) (ne (include "coterie.settingText" $port) "8890") }}
- "{{ $value }} is {{ $port }}, and probes, network policy and monitoring go to 8890: leave it out"
{{- end }}
{{- end }}
{{- $own := include "coterie.pluginEnv" . | fromYamlArray -}}
{{- include "coterie.settingFaults" (dict "value" "plugin.settings" "prefix" "COTERIE_PLUGIN_" "settings" $plugin.settings "own" $own) }}
{{- include "coterie.settingFaults" (dict "value" "plugin.env" "prefix" "" "settings" $plugin.env "own" $own) }}
{{- end }}
{{- end }}

{{- define "coterie.monitoringFaults" -}}
{{- $monitoring := .Values.monitoring -}}
{{- range $name, $kind := dict "podMonitor" "PodMonitor" "rules" "PrometheusRule" }}
{{- if and (get $monitoring $name).enabled (not ($.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}
- "monitoring.{{ $name }}.enabled is true, and this API server does not serve monitoring.coreos.com/v1, which {{ $kind }} is of: install the Prometheus operator's CustomResourceDefinitions first, or leave it out. A tool that renders without a cluster is given the API versions: helm template --api-versions monitoring.coreos.com/v1"
{{- end }}
{{- end }}
{{- if and $monitoring.podMonitor.enabled $monitoring.scrapeAnnotations }}
- "monitoring.podMonitor.enabled and monitoring.scrapeAnnotations are both true: each pod would be scraped twice. Choose the one that your Prometheus goes by"
{{- end }}
{{- end }}

{{/*
Variables that other values make, and these values, which make what belongs to the variables too:
capabilities, mounts, arguments. They are refused whatever the chart makes now.
*/}}
{{- define "coterie.valuesOfVariables" -}}
COTERIE_EXTENDER_READ_ADDRESS: extender.readApi.service
COTERIE_EXTENDER_READ_HOSTS: extender.readApi.hosts
COTERIE_PLUGIN_KUBELET_CA: plugin.kubelet.caConfigMap
COTERIE_PLUGIN_KUBELET_INSECURE: plugin.kubelet.insecure
COTERIE_PLUGIN_KUBELET_SERVER_NAME: plugin.kubelet.serverName
COTERIE_PLUGIN_MODE: plugin.mode
COTERIE_PLUGIN_SIMULATE: plugin.profile and plugin.simulated.machine
CONFIG_FILE: plugin.configMap
DEVICE_LIST_STRATEGY: plugin.deviceListStrategy
MIG_STRATEGY: plugin.migStrategy
NVIDIA_DRIVER_ROOT: plugin.driverRoot
NVIDIA_MIG_MONITOR_DEVICES: plugin.migStrategy
PASS_DEVICE_SPECS: plugin.passDeviceSpecs
{{- end }}

{{/* Settings that the chart makes itself: `value` is their map, `own` the chart's variables. */}}
{{- define "coterie.settingFaults" -}}
{{- $given := . -}}
{{- $values := include "coterie.valuesOfVariables" . | fromYaml -}}
{{- $names := list -}}
{{- range .own }}{{ $names = append $names .name }}{{ end -}}
{{- range $name, $_ := .settings }}
{{- $variable := printf "%s%s" $given.prefix (upper $name) -}}
{{- if hasKey $values $variable }}
- "{{ $given.value }}.{{ $name }} is a setting that the chart makes: leave it out, and set {{ get $values $variable }}"
{{- else if has $variable $names }}
- "{{ $given.value }}.{{ $name }} is a setting that the chart makes from its other values: leave it out, and change those"
{{- end }}
{{- end }}
{{- end }}

{{/*
Other device plugins of NVIDIA's GPUs, seen where a cluster answers: DaemonSets that mount the kubelet's
folder of device plugins and have one of their names in a label, an image or a container's name. These
are `nvidia-device-plugin` and `nvidia/k8s-device-plugin` (NVIDIA's chart and manifest, the GPU
operator), `nvidia-gpu-device-plugin` (GKE) and `hami-device-plugin`.
*/}}
{{- define "coterie.otherPluginFaults" -}}
{{- $plugin := .Values.plugin -}}
{{- $isAnywhere := and $plugin.enabled (eq $plugin.mode "device-plugin") (ne $plugin.profile "simulated") (not $plugin.clean) -}}
{{- if and $isAnywhere (not $plugin.onlyLabelledNodes) (not $plugin.replacesNvidia) }}
{{- $found := list -}}
{{- range (lookup "apps/v1" "DaemonSet" "" "").items }}
{{- $spec := .spec.template.spec -}}
{{- $registers := false -}}
{{- range $spec.volumes }}
{{- if hasSuffix "/device-plugins" (dig "hostPath" "path" "" . | trimSuffix "/") }}{{ $registers = true }}{{ end -}}
{{- end -}}
{{- $names := dig "metadata" "labels" dict .spec.template | values -}}
{{- range $spec.containers }}{{ $names = concat $names (list .name .image) }}{{ end -}}
{{- if and $registers (regexMatch "nvidia[-/](gpu-|k8s-)?device-plugin|hami-device-plugin" (join " " $names)) }}
{{- $found = append $found (printf "%s/%s" .metadata.namespace .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- if $found }}
- "plugin.mode is device-plugin, and the cluster has another device plugin of NVIDIA's GPUs (DaemonSet {{ join ", " $found }}): two on one node disconnect each other. Leave plugin.mode out, set plugin.onlyLabelledNodes to true to move node by node (docs/migrate.md), or set plugin.replacesNvidia to true where the two share no node"
{{- end }}
{{- end }}
{{- end }}

{{/*
Policies of another release, seen where a cluster answers: each lets only its own extender or plugin
write Coterie's annotations, so two would refuse each other's.
*/}}
{{- define "coterie.otherReleaseFaults" -}}
{{- $name := include "coterie.fullname" . -}}
{{- $mine := dict -}}
{{- if include "coterie.schedules" . }}{{ $_ := set $mine "own-keys" "scheduler" }}{{ end -}}
{{- if .Values.plugin.enabled }}{{ $_ := set $mine "node-keys" "node plugin" }}{{ end -}}
{{- range (lookup "admissionregistration.k8s.io/v1" "ValidatingAdmissionPolicy" "" "").items }}
{{- $other := .metadata.name -}}
{{- if eq (dig "labels" "app.kubernetes.io/part-of" "" .metadata) "coterie" }}
{{- range $suffix, $what := $mine }}
{{- if and (hasSuffix (printf "-%s" $suffix) $other) (ne $other (printf "%s-%s" $name $suffix)) }}
- "the cluster has a {{ $what }} of Coterie's already (ValidatingAdmissionPolicy {{ $other }}), and two would refuse each other's annotations: upgrade or uninstall that release, or leave its part out of this one"
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
