{{- define "ullage.name" -}}
{{- default (ternary .Release.Name (printf "%s-ullage" .Release.Name) (contains "ullage" .Release.Name)) .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "ullage.selector" -}}
app.kubernetes.io/name: ullage
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "ullage.labels" -}}
{{ include "ullage.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "ullage.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{- define "ullage.pod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "ullage.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "ullage.serverSecret" -}}
{{ default (printf "%s-tls" (include "ullage.name" .)) .Values.tls.existingServer }}
{{- end }}

{{- define "ullage.clientSecret" -}}
{{ default (printf "%s-scheduler-tls" (include "ullage.name" .)) .Values.tls.existingClient }}
{{- end }}

{{- define "ullage.settings" -}}
[kube]
topologies = {{ .Values.topologies }}
queues = {{ .Values.queues | quote }}
claims = {{ .Values.claims }}
resource_quotas = true
own_user = "system:serviceaccount:{{ .Release.Namespace }}:{{ include "ullage.name" . }}"
hami_users = {{ .Values.hamiUsers | toJson }}
{{- with .Values.settings }}
{{ . }}
{{- end }}
{{- if ne .Values.bindings.scope "off" }}
[kube.bindings]
scope = {{ .Values.bindings.scope | quote }}
strict = {{ .Values.bindings.strict }}
bind = ":8081"
allocations = {{ .Values.bindings.allocations | quote }}
user_prefix = {{ .Values.bindings.userPrefix | quote }}
admins = {{ .Values.bindings.admins | toJson }}
admin_groups = {{ .Values.bindings.adminGroups | toJson }}
{{- range $owner, $quota := .Values.bindings.quotas }}
[kube.bindings.quotas.{{ $owner | toJson }}]
{{- range $name, $most := $quota }}
{{ $name }} = {{ $most | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
