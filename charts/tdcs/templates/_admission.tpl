{{/* The operator's user name, as a string of CEL. */}}
{{- define "tdcs.operatorUser" -}}
{{ printf "system:serviceaccount:%s:%s-operator" .Release.Namespace (include "tdcs.name" .) | squote }}
{{- end }}

{{/* Folders of nodes that the cache's pods may mount besides the default ones of blocks, as a list of CEL: those of the chart's
CacheCluster, of the values, and of FUSE clients where there are some. */}}
{{- define "tdcs.nodeFolders" -}}
{{- $folders := concat .Values.csi.tierFolders .Values.admissionPolicies.nodeFolders }}
{{- if ne (include "tdcs.fuseImages" .) "[]" }}{{ $folders = prepend $folders "/var/lib/tdcs/fuse" }}{{ end }}
{{- if .Values.cacheCluster.create }}
{{- $spec := .Values.cacheCluster.spec }}
{{- range ($spec.storage | default dict).tiers }}
{{- with .path }}{{ $folders = append $folders . }}{{ end }}
{{- end }}
{{- $folders = concat $folders ($spec.sourceFolders | default list) }}
{{- range $spec.sources }}{{ $folders = concat $folders (.folders | default list) }}{{ end }}
{{- end }}
{{- toJson ($folders | uniq) }}
{{- end }}

{{/* Whether the cache's pods may mount this very folder of a node, in CEL, with the list above as variables.folders. Never one below it:
whoever writes to a folder could plant a link there that leads anywhere on the node. No pod of a cache writes to the folder in which the
default ones are. Takes the expression of a path. */}}
{{- define "tdcs.mayMount" -}}
({{ . }} in variables.folders || {{ . }}.matches('^/var/lib/tdcs/cache/[a-z0-9][a-z0-9.-]*$'))
{{- end }}

{{/* Whether a folder is in another one of a CacheCluster, in CEL, with its folders as variables.shared and its rules as
variables.rules. */}}
{{- define "tdcs.liesInAnother" -}}
variables.shared.exists(m, {{ . }}.startsWith(m + '/')) ||
variables.rules.exists(o, o.?folders.orValue([]).exists(m, {{ . }}.startsWith(m + '/')))
{{- end }}

{{/* Images that may run as privileged FUSE clients, as a list of CEL; those of the profile Stock. */}}
{{- define "tdcs.fuseImages" -}}
{{- $images := list }}
{{- if and .Values.cacheCluster.create (eq (.Values.cacheCluster.spec.profile | default "Tuned") "Stock") }}
{{- $images = append $images (include "tdcs.alluxioImage" .) }}
{{- with .Values.cacheCluster.spec.image }}{{ $images = append $images . }}{{ end }}
{{- end }}
{{- toJson (concat $images .Values.admissionPolicies.fuseImages | uniq) }}
{{- end }}

{{/* Whether the pods of a pod spec use the node they run on, in CEL. Takes the expression of the spec. Any field may be there
without a value (`volumes:` in YAML), which is null: only what may not be null is looked into. */}}
{{- define "tdcs.usesNode" -}}
([{{ . }}.?volumes.orValue(null)].exists(l, l != null && l.exists(v, v.?hostPath.orValue(null) != null)) ||
{{ . }}.?hostNetwork.orValue(false) == true || {{ . }}.?hostPID.orValue(false) == true || {{ . }}.?hostIPC.orValue(false) == true ||
[{{ . }}.?containers.orValue(null), {{ . }}.?initContainers.orValue(null)].exists(l, l != null && l.exists(c,
[c.?securityContext.orValue(null)].exists(s, s != null && (s.?privileged.orValue(false) == true ||
[s.?capabilities.orValue(null)].exists(k, k != null && [k.?add.orValue(null)].exists(m, m != null &&
m.exists(a, !(a in {{ include "tdcs.plainCapabilities" . }})))))) ||
[c.?ports.orValue(null)].exists(m, m != null && m.exists(o, o.?hostPort.orValue(0) != 0 && o.?hostPort.orValue(null) != null)))) ||
{{ include "tdcs.isUnconfined" . }})
{{- end }}

{{/* Whether the pods of a pod spec are without a confinement that the Pod Security Standard "baseline" asks for, in CEL: seccomp,
AppArmor, SELinux, the masks of /proc, parameters of the kernel, Windows' host processes, and since Kubernetes 1.34 other hosts in
what kubelet asks (KEP-4940). Takes the expression of the spec. */}}
{{- define "tdcs.isUnconfined" -}}
([{{ . }}.?securityContext.orValue(null)].exists(s, s != null && ({{ include "tdcs.isLoose" "s" }} ||
[s.?sysctls.orValue(null)].exists(l, l != null && l.exists(y, !(y.?name.orValue('') in {{ include "tdcs.safeSysctls" . }}))))) ||
[{{ . }}.?containers.orValue(null), {{ . }}.?initContainers.orValue(null)].exists(l, l != null && l.exists(c,
[c.?securityContext.orValue(null)].exists(s, s != null && (s.?procMount.orValue('') == 'Unmasked' ||
{{ include "tdcs.isLoose" "s" }})) ||
[c.?livenessProbe.orValue(null), c.?readinessProbe.orValue(null), c.?startupProbe.orValue(null)].exists(p, {{ include "tdcs.asksHost" "p" }}) ||
[c.?lifecycle.orValue(null)].exists(y, y != null &&
[y.?postStart.orValue(null), y.?preStop.orValue(null)].exists(p, {{ include "tdcs.asksHost" "p" }})))))
{{- end }}

{{/* Whether a probe or a hook has kubelet ask another host than the pod, such as the node's own loopback address. */}}
{{- define "tdcs.asksHost" -}}
{{ . }} != null && [{{ . }}.?httpGet.orValue(null), {{ . }}.?tcpSocket.orValue(null)].exists(h, h != null &&
[h.?host.orValue(null)].exists(n, n != null && n != ''))
{{- end }}

{{/* The same of what a pod's and a container's security context have in common. */}}
{{- define "tdcs.isLoose" -}}
[{{ . }}.?seccompProfile.orValue(null), {{ . }}.?appArmorProfile.orValue(null)].exists(f, f != null &&
f.?type.orValue('') == 'Unconfined') ||
[{{ . }}.?windowsOptions.orValue(null)].exists(w, w != null && w.?hostProcess.orValue(false) == true) ||
[{{ . }}.?seLinuxOptions.orValue(null)].exists(o, o != null &&
([o.?user.orValue(null), o.?role.orValue(null)].exists(t, t != null && t != '') ||
[o.?type.orValue(null)].exists(t, t != null &&
!(t in ['', 'container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t']))))
{{- end }}

{{/* Parameters of the kernel that hold for a pod alone, as "baseline" names them. */}}
{{- define "tdcs.safeSysctls" -}}
['kernel.shm_rmid_forced', 'net.ipv4.ip_local_port_range', 'net.ipv4.ip_local_reserved_ports', 'net.ipv4.ip_unprivileged_port_start',
'net.ipv4.ping_group_range', 'net.ipv4.tcp_fin_timeout', 'net.ipv4.tcp_keepalive_intvl', 'net.ipv4.tcp_keepalive_probes',
'net.ipv4.tcp_keepalive_time', 'net.ipv4.tcp_rmem', 'net.ipv4.tcp_syncookies', 'net.ipv4.tcp_wmem']
{{- end }}

{{/* Whether annotations take AppArmor away from a container, in CEL: the API server makes the field of a pod from them. Takes the
expression of a map. */}}
{{- define "tdcs.unconfinedBy" -}}
{{ . }}.exists(k, k.startsWith('container.apparmor.security.beta.kubernetes.io/') && {{ . }}[k] == 'unconfined')
{{- end }}

{{/* Whether the containers of a pod spec get at Secrets of its namespace, in CEL. Takes the expression of the spec. */}}
{{- define "tdcs.readsSecrets" -}}
([{{ . }}.?volumes.orValue(null)].exists(l, l != null && l.exists(v, v.?secret.orValue(null) != null ||
[v.?csi.orValue(null)].exists(d, d != null && d.?nodePublishSecretRef.orValue(null) != null) ||
[v.?projected.orValue(null)].exists(j, j != null && [j.?sources.orValue(null)].exists(m, m != null &&
m.exists(s, s.?secret.orValue(null) != null))))) ||
[{{ . }}.?containers.orValue(null), {{ . }}.?initContainers.orValue(null)].exists(l, l != null && l.exists(c,
[c.?envFrom.orValue(null)].exists(m, m != null && m.exists(e, e.?secretRef.orValue(null) != null)) ||
[c.?env.orValue(null)].exists(m, m != null && m.exists(e, [e.?valueFrom.orValue(null)].exists(f, f != null &&
f.?secretKeyRef.orValue(null) != null))))))
{{- end }}

{{/* An endpoint in its one form, in CEL: scheme and host in lower case, without a dot at the host's end, with the port. Takes the
expression of a text in lower case that is a URL. */}}
{{- define "tdcs.endpoint" -}}
url({{ . }}).getScheme() + '://' + {{ include "tdcs.endpointHost" . }} + ':' +
(url({{ . }}).getPort() != '' ? url({{ . }}).getPort() : (url({{ . }}).getScheme() == 'https' ? '443' : '80'))
{{- end }}

{{/* The host of such a text. */}}
{{- define "tdcs.endpointHost" -}}
(isIP(url({{ . }}).getHostname()) ? string(ip(url({{ . }}).getHostname())) :
url({{ . }}).getHostname().endsWith('.') ?
url({{ . }}).getHostname().substring(0, url({{ . }}).getHostname().size() - 1) : url({{ . }}).getHostname())
{{- end }}

{{/* Capabilities that reach no further than the container: those of the Pod Security Standard "baseline", and the one with which
memory is pinned for RDMA. */}}
{{- define "tdcs.plainCapabilities" -}}
['AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'IPC_LOCK', 'KILL', 'MKNOD', 'NET_BIND_SERVICE', 'SETFCAP', 'SETGID',
'SETPCAP', 'SETUID', 'SYS_CHROOT']
{{- end }}

{{/* Capabilities that containers of the cache's pods add, in CEL: those that make a node's disk ready, read shared folders and free
disks (operator/tdcs/control/cachecluster/pod_security.py). */}}
{{- define "tdcs.cacheCapabilities" -}}
['CHOWN', 'DAC_OVERRIDE', 'FOWNER']
{{- end }}

{{/* Whether a Secret holds a certificate of the cache's pods, in CEL: by the names that tdcs.trust.settings gives. Takes the root as
`root`, and the expression of the name as `name`. */}}
{{- define "tdcs.isCertificate" -}}
{{- $trust := .root.Values.trust }}
{{- if not $trust.enabled -}}
false
{{- else if eq $trust.provider "selfSigned" -}}
['master', 'worker', 'agent', 'fuse'].exists(role, {{ .name }}.endsWith('-' + role + '-trust'))
{{- else -}}
['master', 'worker', 'agent', 'fuse'].exists(role, {{ .name }} == '{{ include "tdcs.name" .root }}-trust-' + role)
{{- end }}
{{- end }}
