{{/*
One installation serves a cluster: there is one kubelet socket per node, one scheduler name, one PriorityClass.
So the names do not carry the release's name, and a second release is refused by Helm's ownership check.
*/}}
{{- define "mcp2026.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels that select a component's pods. Argument: dict "root" $ "component" "operator" */}}
{{- define "mcp2026.selectorLabels" -}}
app.kubernetes.io/name: {{ include "mcp2026.name" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of a component's pods: no version of the chart, which alone is no reason to restart them. */}}
{{- define "mcp2026.podLabels" -}}
{{ include "mcp2026.selectorLabels" . }}
app.kubernetes.io/part-of: mcp2026
{{- end -}}

{{/* All labels of an object. Argument: dict "root" $ "component" "operator" */}}
{{- define "mcp2026.labels" -}}
{{ include "mcp2026.selectorLabels" . }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: mcp2026
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* A reference to an image. Argument: dict "image" .Values.image "tag" "used if the image names none" */}}
{{- define "mcp2026.reference" -}}
{{- with .image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .tag }}{{ end -}}
{{- end -}}

{{/* The image with all programs of MCP 2026. */}}
{{- define "mcp2026.image" -}}
{{- include "mcp2026.reference" (dict "image" .Values.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{- define "mcp2026.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Placement of a component's pods. Argument: the component's values. */}}
{{- define "mcp2026.placement" -}}
{{- $placement := pick . "priorityClassName" "nodeSelector" "tolerations" "affinity" -}}
{{- range $field, $value := $placement -}}
{{- if not $value }}{{ $placement = omit $placement $field }}{{ end -}}
{{- end -}}
{{- if $placement }}{{ toYaml $placement }}{{ end -}}
{{- end -}}

{{/* What the "restricted" Pod Security Standard asks of a pod. */}}
{{- define "mcp2026.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* What the "restricted" Pod Security Standard asks of a container, and a root file system that stays as it is. */}}
{{- define "mcp2026.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The scheduler whose profile the extender belongs to: a name that pods and the operator refer to. */}}
{{- define "mcp2026.schedulerName" -}}
mcp2026-scheduler
{{- end -}}

{{/* The Lease of the extender that answers. */}}
{{- define "mcp2026.extenderLease" -}}
mcp2026-scheduler-extender
{{- end -}}

{{/* The scheduler that the operator names in the pods that serve models. */}}
{{- define "mcp2026.podScheduler" -}}
{{- if .Values.operator.schedulerName -}}
{{- .Values.operator.schedulerName -}}
{{- else if .Values.scheduler.enabled -}}
{{- include "mcp2026.schedulerName" . -}}
{{- else -}}
default-scheduler
{{- end -}}
{{- end -}}
