{{/* What the extender's container gets of its environment. */}}
{{- define "coterie.extenderEnv" -}}
{{- if eq .Values.mode "service" -}}
- {name: COTERIE_EXTENDER_LISTEN_ADDRESS, value: 0.0.0.0}
- {name: COTERIE_EXTENDER_LISTEN_PORT, value: "8443"}
- {name: COTERIE_EXTENDER_HEALTH_PORT, value: "8889"}
- {name: COTERIE_EXTENDER_TLS_CERT, value: /etc/coterie/tls/tls.crt}
- {name: COTERIE_EXTENDER_TLS_KEY, value: /etc/coterie/tls/tls.key}
- {name: COTERIE_EXTENDER_TLS_CLIENT_CA, value: /etc/coterie/tls/ca.crt}
{{- else -}}
- {name: COTERIE_EXTENDER_LISTEN_ADDRESS, value: 127.0.0.1}
- {name: COTERIE_EXTENDER_LISTEN_PORT, value: "8888"}
- {name: COTERIE_EXTENDER_HEALTH_PORT, value: "8889"}
{{- end }}
- {name: COTERIE_EXTENDER_READ_PORT, value: "8890"} # on the pod's loopback, for port-forward
{{- if .Values.extender.readApi.service }}
- {name: COTERIE_EXTENDER_READ_ADDRESS, value: 0.0.0.0} # and for the proxy
- name: COTERIE_EXTENDER_READ_HOSTS # by which it may call
  value: {{ include "coterie.readHosts" . }}
{{- end }}
- {name: COTERIE_EXTENDER_HTTP_TIMEOUT_S, value: "30"} # the scheduler's httpTimeout
- name: COTERIE_EXTENDER_RESOURCES # and its managedResources
  value: {{ join "," .Values.gpuResources }}
- name: COTERIE_EXTENDER_SCHEDULER_NAMES # and its profiles
  value: {{ include "coterie.schedulerName" . }}
{{- end }}

{{/* Names of the read API's Service, and those that a proxy before it passes on. */}}
{{- define "coterie.readHosts" -}}
{{- $service := printf "%s-read-api" (include "coterie.fullname" .) -}}
{{- $inNamespace := printf "%s.%s" $service .Release.Namespace -}}
{{- $names := list $service $inNamespace (printf "%s.svc" $inNamespace) (printf "%s.svc.cluster.local" $inNamespace) -}}
{{- join "," (concat $names .Values.extender.readApi.hosts) -}}
{{- end }}

{{/* The extender's container: beside kube-scheduler, or in a pod of its own. */}}
{{- define "coterie.extenderContainer" -}}
{{- $isBeside := eq .Values.mode "second-scheduler" -}}
- name: extender
  image: {{ include "coterie.image" (dict "root" . "image" .Values.extender.image) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [serve]
  env:
    {{- include "coterie.extenderEnv" . | nindent 4 }}
    {{- include "coterie.settingsEnv" (dict "prefix" "COTERIE_EXTENDER_" "settings" .Values.extender.settings) | nindent 4 }}
  ports:
    {{- if not $isBeside }}
    - {name: verbs, containerPort: 8443}
    {{- end }}
    - {name: health, containerPort: 8889}
    - {name: read-api, containerPort: 8890}
  startupProbe: # up to a minute; reading a large cluster is readiness, not start
    httpGet: {path: /livez, port: health}
    periodSeconds: 2
    failureThreshold: 30
  livenessProbe: # a hung extender stops the scheduler: it ends before httpTimeout does
    httpGet: {path: /livez, port: health}
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 3
    terminationGracePeriodSeconds: 8
  readinessProbe: # synced and fresh
    httpGet: {path: /readyz, port: health}
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 2
  resources: {{- toYaml .Values.extender.resources | nindent 4 }}
  lifecycle:
    preStop: # beside the scheduler that ends first, else until no scheduler is led here any more
      sleep:
        seconds: {{ $isBeside | ternary 3 5 }}
  {{- include "coterie.containerSecurity" . | nindent 2 }}
  volumeMounts:
    {{- if $isBeside }}
    - name: extender-account
      mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      readOnly: true
    {{- else }}
    - {name: tls, mountPath: /etc/coterie/tls, readOnly: true}
    {{- end }}
{{- end }}
