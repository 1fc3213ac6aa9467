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
pessimistic_zones = {{ .Values.pessimisticZones }}
legacy_metrics = {{ .Values.legacyMetrics }}
align_all = {{ .Values.alignAll }}
noderesourcetopologies = {{ .Values.nodeResourceTopologies | quote }}
queues = {{ .Values.queues | quote }}
binder = {{ .Values.binder | quote }}
claims = {{ .Values.claims }}
{{- with .Values.claimsFromWords }}
claims_from_words = {{ . | quote }}
{{- end }}
lease_s = {{ .Values.leaseSeconds }}
resource_quotas = true
own_user = "system:serviceaccount:{{ .Release.Namespace }}:{{ include "ullage.name" . }}"
hami_users = {{ .Values.hamiUsers | toJson }}
{{- with .Values.settings }}
{{ . }}
{{- end }}
{{- range .Values.cardModels }}
[[kube.card_model]]
{{- range $name, $value := . }}
{{ $name }} = {{ $value | toJson }}
{{- end }}
{{- end }}
{{- range .Values.cardPools }}
[[kube.card_pool]]
name = {{ .name | toJson }}
models = {{ .models | default list | toJson }}
{{- with .labels }}
[kube.card_pool.labels]
{{- range $key, $value := . }}
{{ $key | toJson }} = {{ $value | toJson }}
{{- end }}
{{- end }}
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
{{- $path := printf "kube.bindings.quotas.%s" ($owner | toJson) }}
{{- include "ullage.quota" (list $path (omit $quota "apps")) }}
{{- range $app, $most := $quota.apps }}
{{- include "ullage.quota" (list (printf "%s.apps.%s" $path ($app | toJson)) $most) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* A section of a quota and those of its models: the path of the section, and its values. */}}
{{- define "ullage.quota" }}
{{- $path := first . }}
[{{ $path }}]
{{- range $name, $most := omit (last .) "models" }}
{{ $name }} = {{ $most | toJson }}
{{- end }}
{{- range $model, $most := (last .).models }}
{{- include "ullage.quota" (list (printf "%s.models.%s" $path ($model | toJson)) $most) }}
{{- end }}
{{- end -}}

{{/* The names of the Services in the server's certificate, separated by commas. */}}
{{- define "ullage.certificateNames" -}}
{{- $hosts := list -}}
{{- range $service := list (include "ullage.name" .) (printf "%s-webhook" (include "ullage.name" .)) -}}
{{- $hosts = concat $hosts (list (printf "%s.%s.svc" $service $.Release.Namespace) (printf "%s.%s.svc.cluster.local" $service $.Release.Namespace)) -}}
{{- end -}}
{{- join "," $hosts -}}
{{- end -}}

{{/*
Whether certificates are to be made, and the day until which they are good then, as JSON. Those in the Secret stay until
a third of their time, or a year, is left. An earlier chart did not write the day: its certificates were good for ten years.
*/}}
{{- define "ullage.certificates" -}}
{{- $server := lookup "v1" "Secret" .Release.Namespace (include "ullage.serverSecret" .) | default dict -}}
{{- $client := lookup "v1" "Secret" .Release.Namespace (include "ullage.clientSecret" .) | default dict -}}
{{- $until := "" -}}
{{- with dig "metadata" "creationTimestamp" "" $server -}}
{{- $until = toDate "2006-01-02T15:04:05Z07:00" . | dateModify "87600h" | date "2006-01-02" -}}
{{- end -}}
{{- $until = dig "metadata" "annotations" "ullage.io/certificates-until" $until $server -}}
{{- $days := int .Values.tls.validDays -}}
{{- $soon := now | dateModify (printf "%dh" (mul 24 (min 365 (div $days 3)))) | date "2006-01-02" -}}
{{- $known := dig "metadata" "annotations" "ullage.io/certificate-names" "" $server -}}
{{- $make := or (not (and $server.data $client.data)) (ne $known (include "ullage.certificateNames" .)) (le $until $soon) -}}
{{- if $make -}}
{{- $until = now | dateModify (printf "%dh" (mul 24 $days)) | date "2006-01-02" -}}
{{- end -}}
{{- dict "make" $make "until" $until | toJson -}}
{{- end -}}

{{/* A checksum of the certificates: pods with the old ones have to restart. */}}
{{- define "ullage.certificatesChecksum" -}}
{{- $until := "" -}}
{{- if not .Values.tls.existingServer -}}
{{- $until = (include "ullage.certificates" . | fromJson).until -}}
{{- end -}}
{{- printf "%s %s" (include "ullage.certificateNames" .) $until | sha256sum -}}
{{- end -}}
