{{/* What NetworkPolicies are made of. */}}

{{/* The rules for names. */}}
{{- define "tdcs.dnsEgress" -}}
{{- with .Values.networkPolicy.dns }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* Ports, from a list of numbers. */}}
{{- define "tdcs.policyPorts" -}}
{{- range . }}
- {port: {{ . }}, protocol: TCP}
{{- end }}
{{- end }}

{{/* Pods of the release, as peers. Takes {root, components}. */}}
{{- define "tdcs.ownPeers" -}}
{{- range .components }}
- podSelector:
    matchLabels: {{- include "tdcs.selector" (dict "root" $.root "component" .) | nindent 6 }}
{{- end }}
{{- end }}

{{/* Pods of all caches of the release's namespace: a selector. Takes a list of their components. */}}
{{- define "tdcs.cacheSelector" -}}
matchExpressions:
  - {key: tdcs.io/cache-cluster, operator: Exists}
  - {key: tdcs.io/component, operator: In, values: {{ toJson . }}}
{{- end }}

{{/* The same, as a peer. */}}
{{- define "tdcs.cachePeer" -}}
- podSelector:
    {{- include "tdcs.cacheSelector" . | nindent 4 }}
{{- end }}

{{/* Who may read metrics at some ports. Takes {root, ports}. */}}
{{- define "tdcs.monitoringIngress" -}}
{{- with .root.Values.networkPolicy.monitoring }}
- from: {{- toYaml . | nindent 4 }}
  ports: {{- include "tdcs.policyPorts" $.ports | trim | nindent 4 }}
{{- end }}
{{- end }}
