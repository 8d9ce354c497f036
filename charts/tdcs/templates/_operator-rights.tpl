{{/* Rights of the operator wherever it works. */}}
{{- define "tdcs.kindRules" -}}
- apiGroups: [tdcs.io]
  resources: [cacheclusters, datasets, preloads, trainingjobs]
  verbs: [get, list, watch]
# Listed to quote why a pod does not start (a volume that is not mounted, say).
- apiGroups: [""]
  resources: [events]
  verbs: [get, list, create, patch]
{{- end }}

{{/* Where there are Datasets and Preloads. */}}
{{- define "tdcs.datasetRules" -}}
- apiGroups: [tdcs.io]
  resources: [datasets]
  verbs: [patch]
- apiGroups: [tdcs.io]
  resources: [preloads]
  verbs: [delete]
- apiGroups: [tdcs.io]
  resources: [datasets/status, preloads/status]
  verbs: [patch]
# To own objects in a way that blocks the owner's deletion, where the API server checks that.
- apiGroups: [tdcs.io]
  resources: [datasets/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
# The pods that serve claims that are sources (pvc://).
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, create, patch, delete]
# What opens such a pod's service: it is made, and never read or changed.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- end }}

{{/* Where there are TrainingJobs. */}}
{{- define "tdcs.jobRules" -}}
- apiGroups: [tdcs.io]
  resources: [trainingjobs]
  # patch: the annotation tdcs.io/ended, see admission-operator.yaml.
  verbs: [delete, patch]
- apiGroups: [tdcs.io]
  resources: [trainingjobs/status]
  verbs: [patch]
- apiGroups: [tdcs.io]
  resources: [trainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [services]
  verbs: [get, create, patch]
# Whether the claims exist that templates name.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# What a namespace's quotas leave to its jobs.
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [list, watch]
{{- if eq .Values.operator.nodeProvisioning "ProvisioningRequest" }}
# Nodes for gangs that the present ones cannot hold.
- apiGroups: [autoscaling.x-k8s.io]
  resources: [provisioningrequests]
  verbs: [get, create, patch, delete]
- apiGroups: [""]
  resources: [podtemplates]
  verbs: [create, patch, delete]
{{- end }}
{{- end }}
