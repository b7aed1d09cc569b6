{{/* Whether the plugin writes CDI specifications: "true" or nothing. */}}
{{- define "coterie.writesCdi" -}}
{{- if and (eq (include "coterie.deviceListStrategy" .) "cdi-cri") (ne .Values.plugin.profile "simulated") }}true{{ end -}}
{{- end }}

{{/* What the plugin's container gets of its environment. */}}
{{- define "coterie.pluginEnv" -}}
{{- $plugin := .Values.plugin -}}
{{- $strategy := include "coterie.deviceListStrategy" . -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: POD_UID # by it the plugin knows its own RuntimeClass
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: NODE_IP # address of the kubelet's API
  valueFrom: {fieldRef: {fieldPath: status.hostIP}}
- {name: COTERIE_PLUGIN_SYSFS_ROOT, value: /host/sys}
- {name: GRPC_VERBOSITY, value: ERROR} # else each connection that ends is a line of its log
- name: NVIDIA_VISIBLE_DEVICES
  value: {{ or $plugin.clean (eq $plugin.profile "simulated") | ternary "void" "all" }}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: utility} # NVML alone, no CUDA
{{- if ne $strategy "envvar" }}
- name: DEVICE_LIST_STRATEGY
  value: {{ $strategy }}
{{- end }}
{{- if include "coterie.writesCdi" . }}
- name: NVIDIA_DRIVER_ROOT
  value: {{ include "coterie.driverRoot" . }}
{{- if eq $plugin.profile "gpu-operator" }}
- name: NVIDIA_CDI_HOOK_PATH
  value: {{ $plugin.gpuOperator.toolkitFolder }}/toolkit/nvidia-cdi-hook
# Complete specifications or none: without the tool they would lack libcuda.
- {name: COTERIE_PLUGIN_CDI_GENERATOR, value: nvidia-ctk}
{{- if ne $plugin.gpuOperator.toolkitFolder "/usr/local/nvidia" }}
- name: COTERIE_PLUGIN_TOOLKIT_FOLDER
  value: {{ $plugin.gpuOperator.toolkitFolder }}/toolkit
{{- end }}
{{- else }}
- {name: COTERIE_PLUGIN_TOOLKIT_FOLDER, value: /driver-root/usr/bin}
{{- end }}
{{- end }}
{{- if ne $plugin.migStrategy "none" }}
- name: MIG_STRATEGY
  value: {{ $plugin.migStrategy }}
- {name: NVIDIA_MIG_MONITOR_DEVICES, value: all}
{{- end }}
{{- if $plugin.passDeviceSpecs }}
- {name: PASS_DEVICE_SPECS, value: "true"}
{{- end }}
{{- if $plugin.configMap }}
- {name: CONFIG_FILE, value: /etc/coterie/config/config.yaml}
{{- end }}
{{- if $plugin.kubelet.insecure }}
- {name: COTERIE_PLUGIN_KUBELET_INSECURE, value: "true"}
{{- end }}
{{- if $plugin.kubelet.caConfigMap }}
- {name: COTERIE_PLUGIN_KUBELET_CA, value: /etc/coterie/kubelet/ca.crt}
{{- end }}
{{- with $plugin.kubelet.serverName }}
- name: COTERIE_PLUGIN_KUBELET_SERVER_NAME
  value: {{ . }}
{{- end }}
{{- end }}

{{/*
Folders of the host and files, each an exception with its reason: a mount for the container and a
volume for the pod, of the same name.
*/}}
{{- define "coterie.pluginMounts" -}}
{{- $plugin := .Values.plugin -}}
# The folder with the socket to register at, our own sockets, and the checkpoint of who has which
# device. It is at this path whatever the kubelet's --root-dir is. Whoever writes here is root on the
# node: an answer to the kubelet may mount any path of it into a pod. A reporter reads it.
- mount:
    mountPath: /var/lib/kubelet/device-plugins
    {{- if eq .Values.plugin.mode "reporter" }}
    readOnly: true
    {{- end }}
  volume:
    name: device-plugins
    hostPath: {path: /var/lib/kubelet/device-plugins, type: Directory}
# The folder with the socket that reports which pod has which device. Read-only: a socket can be used
# all the same, and none be put there.
- mount: {mountPath: /var/lib/kubelet/pod-resources, readOnly: true}
  volume:
    name: pod-resources
    hostPath:
      path: {{ $plugin.kubelet.rootFolder }}/pod-resources
      type: Directory
# The kernel's view of the machine. Every container has one, but in it the network cards of the host's
# network namespace are missing.
- mount: {mountPath: /host/sys, readOnly: true}
  volume:
    name: sysfs
    hostPath: {path: /sys, type: Directory}
{{- if and (eq (include "coterie.deviceListStrategy" .) "volume-mounts") (not $plugin.clean) }}
# An empty file; the runtime reads which devices are wanted from the path under which it is mounted.
- mount: {mountPath: /var/run/nvidia-container-devices/all}
  volume:
    name: all-gpus
    hostPath: {path: /dev/null, type: CharDevice}
{{- end }}
{{- if include "coterie.writesCdi" . }}
# Where the runtime looks for specifications.
- mount: {mountPath: /var/run/cdi}
  volume:
    name: cdi
    hostPath: {path: /var/run/cdi, type: DirectoryOrCreate}
{{- if eq (include "coterie.driverRoot" .) "/" }}
# The driver's libraries and programs, whose folder below /usr differs from host to host; and /dev,
# whose nodes are looked for and never opened (the container has those of the GPUs alone).
- mount: {mountPath: /driver-root/usr, readOnly: true}
  volume:
    name: driver-usr
    hostPath: {path: /usr, type: Directory}
- mount: {mountPath: /driver-root/dev, readOnly: true}
  volume:
    name: driver-dev
    hostPath: {path: /dev, type: Directory}
{{- else }}
# The root of the driver's files, which may come after this pod.
- mount: {mountPath: /driver-root, readOnly: true, mountPropagation: HostToContainer}
  volume:
    name: driver-root
    hostPath:
      path: {{ include "coterie.driverRoot" . }}
      type: DirectoryOrCreate
{{- end }}
{{- if eq $plugin.profile "gpu-operator" }}
# The folder of the toolkit that the operator installed, for its nvidia-ctk: the toolkit's own folder
# is replaced by another one when it is upgraded.
- mount:
    mountPath: {{ $plugin.gpuOperator.toolkitFolder }}
    readOnly: true
  volume:
    name: toolkit
    hostPath:
      path: {{ $plugin.gpuOperator.toolkitFolder }}
      type: DirectoryOrCreate
{{- end }}
{{- end }}
{{- with $plugin.configMap }}
- mount: {mountPath: /etc/coterie/config, readOnly: true}
  volume:
    name: config
    configMap:
      name: {{ . }}
{{- end }}
{{- with $plugin.kubelet.caConfigMap }}
- mount: {mountPath: /etc/coterie/kubelet, readOnly: true}
  volume:
    name: kubelet-ca
    configMap:
      name: {{ . }}
{{- end }}
{{- end }}

{{/* Labels that a node must have. */}}
{{- define "coterie.pluginNodeSelector" -}}
{{- $labels := dict "kubernetes.io/os" "linux" -}}
{{- if and (eq .Values.plugin.profile "gpu-operator") (not .Values.plugin.clean) -}}
{{- $_ := set $labels .Values.plugin.gpuOperator.clientLabel "true" -}}
{{- $_ := set $labels "nvidia.com/gpu.deploy.operator-validator" "true" -}}
{{- end -}}
{{- merge $labels .Values.plugin.nodeSelector | toYaml -}}
{{- end }}

{{/* Labels of which a node must have one. */}}
{{- define "coterie.pluginNodeLabels" -}}
{{- if eq .Values.plugin.profile "simulated" -}}
- coterie.gpu/simulated
{{- else -}}
{{- if not .Values.plugin.onlyLabelledNodes -}}
- feature.node.kubernetes.io/pci-10de.present # set by Node Feature Discovery as NVIDIA's charts configure it
- feature.node.kubernetes.io/pci-0302_10de.present # set by it by default: a 3D controller of NVIDIA's
- feature.node.kubernetes.io/pci-0300_10de.present # the same for a display controller
- nvidia.com/gpu.present # set by NVIDIA's GPU operator
{{ end -}}
- coterie.gpu/agent # set by you
{{- end -}}
{{- end }}
