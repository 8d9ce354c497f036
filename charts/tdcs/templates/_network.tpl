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

{{/* Terms of a selector that fit the pods of all caches, as a JSON list. */}}
{{- define "tdcs.allCaches" -}}
[{"key": "tdcs.io/cache-cluster", "operator": "Exists"}]
{{- end }}

{{/* The groups of caches that policies keep apart, as a JSON list: each cache that is named, and last all others together. Each group
has the end of its policies' names, and terms as above. */}}
{{- define "tdcs.cacheGroups" -}}
{{- $names := include "tdcs.cacheClusters" (dict "root" . "further" .Values.networkPolicy.cacheClusters) | fromJsonArray }}
{{- $groups := list }}
{{- range $names }}
{{- $term := dict "key" "tdcs.io/cache-cluster" "operator" "In" "values" (list .) }}
{{- $groups = append $groups (dict "suffix" (printf "-%s" .) "terms" (list $term)) }}
{{- end }}
{{- $others := include "tdcs.allCaches" . | fromJsonArray }}
{{- with $names }}
{{- /* NotIn alone fits pods without the label, too. */}}
{{- $others = append $others (dict "key" "tdcs.io/cache-cluster" "operator" "NotIn" "values" .) }}
{{- end }}
{{- append $groups (dict "suffix" "" "terms" $others) | toJson }}
{{- end }}

{{/* Pods of caches in the release's namespace: a selector. Takes a list: terms about the cache, and then components. */}}
{{- define "tdcs.cacheSelector" -}}
matchExpressions:
  {{- range first . }}
  - {{ toJson . }}
  {{- end }}
  - {key: tdcs.io/component, operator: In, values: {{ rest . | toJson }}}
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

{{/* Ports of the release that no pod reaches but those that policies admit, as HOST:PORT: what the network probe tries next to a cache's. */}}
{{- define "tdcs.probeTargets" -}}
{{- $name := include "tdcs.name" . }}
{{- $nodes := printf "%s-nodes.%s.svc" $name .Release.Namespace }}
{{- $found := list (printf "%s-manifests.%s.svc:8082" $name .Release.Namespace) }}
{{- if .Values.csi.enabled }}
{{- $found = concat $found (list (printf "%s:9808" $nodes) (printf "%s:9809" $nodes)) }}
{{- end }}
{{- $found | toJson }}
{{- end }}

{{/* Pods in namespaces of Datasets that serve a claim which is a source, as a rule of egress. */}}
{{- define "tdcs.claimServers" -}}
- to:
    - namespaceSelector: {}
      podSelector:
        matchLabels: {app.kubernetes.io/managed-by: tdcs, tdcs.io/component: claim-server}
  ports: {{- include "tdcs.policyPorts" (list 8443) | trim | nindent 4 }}
{{- end }}
