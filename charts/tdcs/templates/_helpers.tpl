{{/* The name in front of every object's: the release's, with the chart's where that does not say it already. */}}
{{- define "tdcs.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{/* Labels of every object. Takes {root, component}. */}}
{{- define "tdcs.labels" -}}
{{ include "tdcs.selector" . }}
app.kubernetes.io/part-of: tdcs
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* Labels that select the pods of a component. They never change. */}}
{{- define "tdcs.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The image of operator, extender and CSI node plugin. */}}
{{- define "tdcs.image" -}}
{{ include "tdcs.reference" (dict "image" .Values.image "tag" .Chart.AppVersion) }}
{{- end }}

{{/* The image of the cache's own pods. */}}
{{- define "tdcs.alluxioImage" -}}
{{ include "tdcs.reference" (dict "image" .Values.alluxio.image "tag" .Chart.AppVersion) }}
{{- end }}

{{/* An image by its digest where one is given, else by its tag. Takes {image, tag}: the values, and the tag where they have none. */}}
{{- define "tdcs.reference" -}}
{{ .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .tag }}{{ end }}
{{- end }}

{{/* kube-scheduler must not be newer than the API server; what distributions add to the version is no part of the image's tag. */}}
{{- define "tdcs.schedulerImage" -}}
{{- $version := regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version }}
{{- include "tdcs.reference" (dict "image" .Values.scheduler.image "tag" $version) }}
{{- end }}

{{/* A container that meets the Pod Security Standard "restricted". */}}
{{- define "tdcs.restricted" -}}
{{ include "tdcs.restrictedAs" 65532 }}
{{- end }}

{{/* The same, as the user with this number. */}}
{{- define "tdcs.restrictedAs" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Options of a process, from its values: workerReturnSeconds: 60 becomes --worker-return-seconds=60, explain: true --explain, false
--no-explain. What is about its pod or the objects around it is no option. An option that users set is a field of the process's settings
(tdcs.options) and a key of these values, no more. */}}
{{- define "tdcs.options" -}}
{{- range $key, $value := omit . "enabled" "fairShare" "replicas" "resources" "nodeSelector" "tolerations" "affinity" "manifestsSize" "weight" "holder" }}
{{- if kindIs "bool" $value }}
- --{{ $value | ternary "" "no-" }}{{ kebabcase $key }}
{{- else }}
- --{{ kebabcase $key }}={{ kindIs "string" $value | ternary $value (toJson $value) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The user of the remote-read client, and of what serves in its place: no other process of TDCS runs as the same. */}}
{{- define "tdcs.readerUser" -}}65531{{- end }}

{{/* Of the pods with the remote-read client: it reads the certificate, and the blocks of the cache's user. */}}
{{- define "tdcs.readerGroups" -}}
fsGroup: {{ include "tdcs.readerUser" . }}
fsGroupChangePolicy: OnRootMismatch
supplementalGroups: [65532]
{{- end }}

{{/* Tolerations of what every job needs: from a node that is lost it moves after 30 s, and not after Kubernetes' 5 min.
Takes the user's, which come first. */}}
{{- define "tdcs.tolerations" -}}
{{- range . }}
- {{ toJson . }}
{{- end }}
{{- range $key := list "not-ready" "unreachable" }}
- {key: node.kubernetes.io/{{ $key }}, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
{{- end }}
{{- end }}

{{/* The configuration of the scheduler; tests/support/scheduler_configuration.py holds the same and the reasons. */}}
{{- define "tdcs.schedulerConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
percentageOfNodesToScore: 100
profiles:
  - schedulerName: {{ .Values.scheduler.name }}
{{- if .Values.extender.enabled }}
extenders:
  - urlPrefix: http://127.0.0.1:8900
    prioritizeVerb: prioritize
    weight: {{ .Values.extender.weight }}
    nodeCacheCapable: true
    httpTimeout: 500ms
    ignorable: true
{{- end }}
{{- end }}

{{/* The version of MutatingAdmissionPolicies that the API server has; empty: none. */}}
{{- define "tdcs.policyVersion" -}}
{{- range list "v1beta1" "v1" }}
{{- if $.Capabilities.APIVersions.Has (printf "admissionregistration.k8s.io/%s/MutatingAdmissionPolicy" .) }}{{ . }} {{ end }}
{{- end }}
{{- end }}

{{/* How pods with a Dataset's claim come to the scheduler: Policy, Webhook or Off. */}}
{{- define "tdcs.placeByData" -}}
{{- if not (and .Values.scheduler.enabled .Values.extender.enabled) }}Off
{{- else if ne .Values.placeByData "Auto" }}{{ .Values.placeByData }}
{{- else if include "tdcs.policyVersion" . }}Policy
{{- else }}Webhook
{{- end }}
{{- end }}

{{/* Whether the extender serves the webhook: for new pods, or for the affinity of those that other schedulers place. */}}
{{- define "tdcs.servesWebhook" -}}
{{- $how := include "tdcs.placeByData" . }}
{{- if or (eq $how "Webhook") (and (eq $how "Policy") .Values.placeByAffinity) }}true{{ end }}
{{- end }}

{{/* Which new pods may be placed by their data, in CEL; tdcs_scheduler.pod_review says the same. */}}
{{- define "tdcs.placeByDataConditions" -}}
# A pod that names no scheduler has the default one's name by now.
- name: names-no-scheduler
  expression: object.spec.?schedulerName.orValue("") in ["", "default-scheduler"] && object.spec.?nodeName.orValue("") == ""
- name: is-not-opted-out
  expression: object.metadata.?labels["tdcs.io/place-by-data"].orValue("") != "false"
# It keeps its scheduler, and gets node affinity.
- name: asks-for-no-affinity
  expression: '!object.metadata.?annotations["tdcs.io/data-affinity"].hasValue()'
# The operator has decided about those.
- name: is-of-no-training-job
  expression: '!object.metadata.?labels["tdcs.io/training-job"].hasValue()'
{{- end }}

{{/* Annotations of what updates the CustomResourceDefinitions; takes the weight. */}}
{{- define "tdcs.crdHook" -}}
helm.sh/hook: pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* Annotations of what an uninstall runs first; takes the weight. */}}
{{- define "tdcs.uninstallHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
helm.sh/hook-output-log-policy: hook-failed
{{- end }}

{{/* Annotations of what `helm test` makes; takes the weight. Helm prints the log of its pod. The pod of a test that failed stays until
the next test, so that it can be looked at. */}}
{{- define "tdcs.testHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
helm.sh/hook-output-log-policy: hook-succeeded,hook-failed
{{- end }}

{{/* The names of the CacheClusters that the values know, as a JSON list: the chart's own, and further ones. Takes {root, further}. */}}
{{- define "tdcs.cacheClusters" -}}
{{- $names := .further | default list }}
{{- with .root.Values.cacheCluster }}
{{- if .create }}{{ $names = prepend $names .name | uniq }}{{ end }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{/* Folders of cached blocks outside of /var/lib/tdcs, as a JSON list: those of the first CacheCluster, and csi.tierFolders. */}}
{{- define "tdcs.tierFolders" -}}
{{- $folders := .Values.csi.tierFolders }}
{{- if .Values.cacheCluster.create }}
{{- range (.Values.cacheCluster.spec.storage | default dict).tiers }}
{{- with .path }}{{ $folders = append $folders . }}{{ end }}
{{- end }}
{{- end }}
{{- $outside := list }}
{{- range $folders | uniq }}
{{- if not (hasPrefix "/var/lib/tdcs/" .) }}{{ $outside = append $outside . }}{{ end }}
{{- end }}
{{- toJson $outside }}
{{- end }}
