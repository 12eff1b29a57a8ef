{{- /* Values of a form that users write by hand. A pattern in the schema would refuse them too, and show its regular
expression: here the message has the value, what was expected and an example. They end up in YAML as they are. */}}
{{- define "instaslice.forms" }}
{{- $name := "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$" }}
{{- $nameSays := "a name of Kubernetes: small letters and digits, with - and . between them" }}
{{- $namespace := "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" }}
{{- $namespaceSays := "the name of a namespace: small letters and digits, with - between them" }}
{{- $folder := "^/[A-Za-z0-9._/@+-]*$" }}
{{- $folderSays := "a whole path on the node, which begins with / and has letters, digits and . _ @ + - only" }}
{{- $agent := .Values.agent }}
{{- $forms := list
  (list "image.tag" .Values.image.tag "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"
    "a tag: letters and digits with . _ - between them (a digest goes into image.digest)" "v1.2")
  (list "image.digest" .Values.image.digest "^(sha256:[0-9a-f]{64})?$"
    "sha256: and 64 digits and letters from a to f" "sha256:4bcf…e1, whole, as `docker image inspect` or the registry shows it")
  (list "agent.kubeletDir" $agent.kubeletDir $folder $folderSays "/var/lib/kubelet")
  (list "agent.cdiDir" $agent.cdiDir $folder $folderSays "/var/run/cdi")
  (list "agent.stateDir" $agent.stateDir $folder $folderSays "/var/lib/instaslice")
  (list "agent.dcgmJobMappingDir" $agent.dcgmJobMappingDir "^(/[A-Za-z0-9._/@+-]+)?$" $folderSays "/var/lib/dcgm-exporter/job-mapping")
  (list "agent.driver.runtimeClassName" $agent.driver.runtimeClassName $name $nameSays "nvidia")
  (list "agent.driver.library" $agent.driver.library "^(/[A-Za-z0-9._/@+-]+)?$" $folderSays "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
  (list "agent.maxSurge" $agent.maxSurge (ternary "^([1-9][0-9]?|100)%$" "^[1-9][0-9]*$" (kindIs "string" $agent.maxSurge)) "a number of nodes, or a share of them up to 100%" "10%")
  (list "certManager.issuer.name" .Values.certManager.issuer.name $name $nameSays "our-issuer")
  (list "priorityClass.name" .Values.priorityClass.name $name $nameSays "instaslice")
  (list "metrics.certificateSecret" .Values.metrics.certificateSecret $name $nameSays "metrics-tls")
  (list "metrics.serviceMonitor.interval" .Values.metrics.serviceMonitor.interval "^[0-9]+(ms|s|m|h)$" "a number with its unit, one of ms, s, m and h" "30s")
  (list "test.namespace" .Values.test.namespace $namespace $namespaceSays "team-a")
  (list "test.profile" .Values.test.profile "^([0-9]+g\\.[0-9]+gb([-+.].+)?)?$"
    "a profile alone, without nvidia.com/mig-" "1g.5gb")
}}
{{- range .Values.agent.driverSpecs }}
{{- $forms = append $forms (list "agent.driverSpecs" . $folder $folderSays "/etc/cdi/nvidia.yaml") }}
{{- end }}
{{- range .Values.webhook.namespaces }}
{{- $forms = append $forms (list "webhook.namespaces" . $namespace $namespaceSays "team-a") }}
{{- end }}
{{- range .Values.metrics.namespaces }}
{{- $forms = append $forms (list "metrics.namespaces" . $namespace $namespaceSays "monitoring") }}
{{- end }}
{{- range splitList "," (toString $agent.gpus) }}
{{- $entry := trim . }}
{{- if hasPrefix "MIG-" (upper $entry) }}
{{- fail (printf "\n\nagent.gpus=%s: %s is a slice of a GPU; name the whole GPU, by the index or UUID that `nvidia-smi -L` shows" (toString $agent.gpus) $entry) }}
{{- end }}
{{- $forms = append $forms (list "agent.gpus" $entry "^([0-9]+|[Gg][Pp][Uu]-[0-9A-Fa-f-]+|[A-Za-z][A-Za-z0-9 ._/-]*[0-9][A-Za-z0-9 ._/-]*)?$"
  "indexes, UUIDs or models of GPUs, each by itself with a comma between them (no range; empty means all)" "\"0,1,2\", GPU-5f3c… or H200; by --set with \\,: --set-string agent.gpus=0\\,1\\,2") }}
{{- end }}
{{- range $forms }}
{{- if not (regexMatch (index . 2) (toString (index . 1))) }}
{{- fail (printf "\n\n%s=%s: expected %s. Example: %s" (index . 0) (toString (index . 1)) (index . 3) (index . 4)) }}
{{- end }}
{{- end }}
{{- end }}
