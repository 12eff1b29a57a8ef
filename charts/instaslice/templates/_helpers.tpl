{{/* One InstaSlice per cluster: its names are fixed, since policies, `instaslice doctor` and the docs name them. */}}

{{- define "instaslice.labels" -}}
app.kubernetes.io/name: instaslice
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* (dict "root" $ "component" "agent") */}}
{{- define "instaslice.selector" -}}
app.kubernetes.io/name: instaslice
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "instaslice.podMetadata" -}}
{{- $values := index .root.Values .component }}
labels:
  {{- include "instaslice.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "instaslice.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What the container of each of our processes has in common. */}}
{{- define "instaslice.container" -}}
image: {{ include "instaslice.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError
{{- end }}

{{- define "instaslice.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "instaslice.pod" -}}
{{- with include "instaslice.pullSecrets" .root }}
{{- . }}
{{ end -}}
serviceAccountName: instaslice-{{ .component }}
enableServiceLinks: false
{{- if or .root.Values.priorityClass.create .root.Values.priorityClass.name }}
priorityClassName: {{ .root.Values.priorityClass.name }}
{{- end }}
{{- end }}

{{/* Where a pod runs: controller and webhook, on nodes apart where there are several. */}}
{{- define "instaslice.placement" -}}
{{- $values := index .root.Values .component }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "instaslice.selector" $ | nindent 8 }}
    # Of one version: otherwise the pods that an upgrade replaces push the new ones aside.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}

{{- define "instaslice.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "instaslice.nonRoot" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "instaslice.env" -}}
{{- with .Values.apiServer }}
{{- if .host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .port | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where each process serves metrics and health: the last part of `--observe`. */}}
{{- define "instaslice.observePort" -}}
{{- get (dict "controller" 9510 "webhook" 9511 "agent" 9512) . }}
{{- end }}

{{/* (dict "root" $ "component" "agent"): the flags that all processes share, with the further ones of each. */}}
{{- define "instaslice.sharedFlags" -}}
{{- $metrics := .root.Values.metrics }}
{{- $logs := .root.Values.logs }}
{{- $certificates := ternary "/etc/instaslice/metrics" "" (ne $metrics.certificateSecret "") }}
{{- include "instaslice.flags" (dict "observe" (printf ":%s" (include "instaslice.observePort" .component))
    "metrics-auth" $metrics.auth "observe-cert-dir" $certificates
    "log-format" $logs.format "log-level" $logs.level) }}
{{- with (index .root.Values .component).extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "instaslice.probes" -}}
{{- $metrics := .root.Values.metrics }}
{{- $scheme := ternary "HTTPS" "HTTP" (or $metrics.auth (ne $metrics.certificateSecret "")) }}
readinessProbe:
  httpGet: {path: /readyz, port: observe, scheme: {{ $scheme }}}
  periodSeconds: 2
livenessProbe:
  httpGet: {path: /healthz, port: observe, scheme: {{ $scheme }}}
  initialDelaySeconds: 20
  failureThreshold: 6
{{- end }}

{{- define "instaslice.metricsMount" -}}
{{- if .Values.metrics.certificateSecret }}
- {name: metrics-certificates, mountPath: /etc/instaslice/metrics, readOnly: true}
{{- end }}
{{- end }}

{{- define "instaslice.metricsVolume" -}}
{{- with .Values.metrics.certificateSecret }}
- name: metrics-certificates
  secret:
    secretName: {{ . }}
{{- end }}
{{- end }}

{{/* A dict of flag → value as arguments. Null and "" leave a flag out, true is a flag alone, a list repeats it. */}}
{{- define "instaslice.flags" -}}
{{- range $flag, $value := . }}
{{- if kindIs "bool" $value }}
{{- if $value }}
- --{{ $flag }}
{{- end }}
{{- else if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "--%s=%v" $flag . | quote }}
{{- end }}
{{- else if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}
- {{ printf "--%s=%v" $flag $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* A generated file as an object, with what only the release knows: its namespace, and the webhook's namespaces. */}}
{{- define "instaslice.generated" -}}
{{- $limited := .root.Values.webhook.namespaces }}
{{- .root.Files.Get (printf "files/%s.yaml" .file) | fromYaml | toJson
    | replace "[\"${namespaces}\"]" (toJson $limited)
    | replace "'${namespaces}'" (printf "'%s'" (join "', '" $limited))
    | replace "${namespace}" .root.Release.Namespace }}
{{- end }}

{{/* A document of such a file, with our labels. */}}
{{- define "instaslice.document" }}
---
{{ $labels := include "instaslice.labels" .root | fromYaml }}
{{- $ours := dict "metadata" (dict "labels" $labels) }}
{{- toYaml (mustMergeOverwrite (deepCopy .document) $ours) }}
{{- end }}

{{- define "instaslice.agentNodes" -}}
{{- if .Values.agent.nodeSelector }}
{{- toYaml .Values.agent.nodeSelector }}
{{- else if .Values.agent.emulated.enabled }}
kubernetes.io/os: linux
{{- else }}
nvidia.com/gpu.present: "true"
{{- end }}
{{- end }}

{{/* Folders with descriptions of the driver, as JSON; the one for CDI is mounted anyway. */}}
{{- define "instaslice.driverSpecFolders" -}}
{{- $folders := list }}
{{- if not .Values.agent.emulated.enabled }}
{{- range .Values.agent.driverSpecs | default (list "/etc/cdi/nvidia.yaml") }}
{{- $folders = append $folders (dir .) }}
{{- end }}
{{- end }}
{{- without (uniq $folders) (clean .Values.agent.cdiDir) | toJson }}
{{- end }}

{{/* The name of a GPU model that is given by its name or by a short one. */}}
{{- define "instaslice.model" -}}
{{- get (.root.Files.Get "files/models.yaml" | fromYaml).names .model | default .model }}
{{- end }}

{{/* The profiles of a GPU model, as JSON. */}}
{{- define "instaslice.profiles" -}}
{{- get (.root.Files.Get "files/models.yaml" | fromYaml).profiles (include "instaslice.model" .) | toJson }}
{{- end }}

{{/* What of the cluster the agent will find, as JSON: `nodes` in all (0 without a cluster), `ours` that its selector
selects, and `model` of their GPUs by the label of NVIDIA's feature discovery, if it is known. */}}
{{- define "instaslice.nodesOfAgent" -}}
{{- $wanted := include "instaslice.agentNodes" . | fromYaml }}
{{- $products := (.Files.Get "files/models.yaml" | fromYaml).products }}
{{- $found := dict "nodes" 0 "ours" 0 "model" "" }}
{{- range (lookup "v1" "Node" "" "").items }}
{{- $labels := dig "metadata" "labels" dict . }}
{{- $ours := true }}
{{- range $key, $value := $wanted }}
{{- if ne (toString (get $labels $key)) (toString $value) }}
{{- $ours = false }}
{{- end }}
{{- end }}
{{- $_ := set $found "nodes" (add1 $found.nodes) }}
{{- if $ours }}
{{- $_ := set $found "ours" (add1 $found.ours) }}
{{- $_ := set $found "model" ($found.model | default (get $products (get $labels "nvidia.com/gpu.product"))) }}
{{- end }}
{{- end }}
{{- $found | toJson }}
{{- end }}

{{/* The profile that `helm test` asks for: the smallest of a model that the cluster is known to have. */}}
{{- define "instaslice.testProfile" -}}
{{- if .Values.test.profile }}
{{- .Values.test.profile }}
{{- else }}
{{- $model := "A100-40GB" }}
{{- if .Values.agent.emulated.enabled }}
{{- $model = .Values.agent.emulated.model }}
{{- else }}
{{- $model = (include "instaslice.nodesOfAgent" . | fromJson).model | default (.Values.webhook.models | default list | first) | default $model }}
{{- end }}
{{- first (include "instaslice.profiles" (dict "root" $ "model" $model) | fromJsonArray) }}
{{- end }}
{{- end }}
