{{- define "stormcast.fullname" -}}
{{- /* Pods are called NAME-0, and a label adds a hash of 11 characters: 63 in all. */ -}}
{{- if gt (len .Release.Name) 40 -}}
{{- fail (printf "release name %s has %d characters: 40 at most, for names made of it must fit a label" .Release.Name (len .Release.Name)) -}}
{{- end -}}
{{- /* Services are called like this, and their names are stricter than those of releases. */ -}}
{{- if not (regexMatch "^[a-z][a-z0-9-]*$" .Release.Name) -}}
{{- fail (printf "release name %s: begin with a small letter, and write small letters, digits and dashes, for Services are named after it" .Release.Name) -}}
{{- end -}}
{{- printf "%s-stormcast" .Release.Name -}}
{{- end -}}

{{- define "stormcast.controller" -}}
{{ include "stormcast.fullname" . }}-controller
{{- end -}}

{{- define "stormcast.secret" -}}
{{- .Values.token.existingSecret | default (printf "%s-token" (include "stormcast.fullname" .)) -}}
{{- end -}}

{{- define "stormcast.keys" -}}
{{- .Values.keys.existingSecret | default (printf "%s-keys" (include "stormcast.fullname" .)) -}}
{{- end -}}

{{- define "stormcast.tls" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "stormcast.fullname" .)) -}}
{{- end -}}

{{- /* Flags of TLS for what listens where others reach it. */ -}}
{{- define "stormcast.tlsArgs" -}}
{{- if .Values.tls.enabled -}}
- --certificate-file=/etc/stormcast/tls/tls.crt
- --private-key-file=/etc/stormcast/tls/tls.key
{{- else -}}
- --tls=none
{{- end -}}
{{- end -}}

{{- /* The certificate and its key, for what listens. */ -}}
{{- define "stormcast.tlsVolume" -}}
- name: tls
  secret:
    secretName: {{ include "stormcast.tls" . | quote }}
    defaultMode: 0440
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
{{- end -}}

{{- /* The certificate of its issuer, for who verifies it. */ -}}
{{- define "stormcast.caVolume" -}}
- name: ca
  secret:
    secretName: {{ include "stormcast.tls" . | quote }}
    items: [{key: ca.crt, path: ca.crt}]
{{- end -}}

{{- /* What a selector may hold: nothing that an upgrade changes. Call with a dict: root, component. */ -}}
{{- define "stormcast.selector" -}}
app.kubernetes.io/name: stormcast
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- /* Of objects, never of pods: a new chart alone must not restart members. */ -}}
{{- define "stormcast.labels" -}}
{{ include "stormcast.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{- /* Call with a dict: root, image. */ -}}
{{- define "stormcast.image" -}}
{{- if .image.digest -}}
image: {{ printf "%s@%s" .image.repository .image.digest | quote }}
{{- else -}}
image: {{ printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) | quote }}
{{- end }}
imagePullPolicy: {{ .image.pullPolicy }}
{{- end -}}

{{- define "stormcast.pullSecrets" -}}
{{- with .Values.images.pullSecrets -}}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "stormcast.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "stormcast.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* The content of a member's configuration, docs/node.md. Numbers of values are floats, which from a
million on are printed as 1e+06 unless they are made whole again. */ -}}
{{- define "stormcast.memberConfig" -}}
{{- $transport := "TCP" -}}
{{- $settings := dict "bind_port" 7800 "port_range" 0 -}}
{{- if has .Values.member.stack (list "udp" "mcast") -}}
{{- $transport = "UDP" -}}
{{- $_ := set $settings "ip_mcast" "never" -}}
{{- else if ne .Values.member.stack "tcp" -}}
{{- $transport = "TCP_NIO2" -}}
{{- end -}}
{{- $protocols := dict $transport $settings -}}
{{- if eq .Values.member.discovery "DNS_PING" -}}
{{- $_ := set $protocols "DNS_PING" (dict "dns_query" (include "stormcast.fullname" .)) -}}
{{- end -}}
{{- with .Values.member -}}
cluster: {{ include "stormcast.fullname" $ }}
stack: {{ .stack }}
timing: {{ .timing }}
{{- with .unicast }}
unicast: {{ . }}
{{- end }}
discovery: {{ .discovery }}
seed: {{ int64 .seed }}
protocols: {{- mergeOverwrite $protocols (deepCopy .protocols) | toYaml | nindent 2 }}
{{- with .workload }}
workload: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Capabilities that Kubernetes adds take effect for uid 0 only, so the agent has that, and none
of what else comes with it: it can act on the network of its pod, and on nothing else. */ -}}
{{- define "stormcast.agentContainer" -}}
runAsUser: 0
runAsGroup: 0
runAsNonRoot: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL], add: [NET_ADMIN, NET_RAW]}
{{- end -}}

{{- /* The host of all listeners; values that an upgrade reuses may lack it. */ -}}
{{- define "stormcast.listenHost" -}}
{{ .Values.listenHost | default "0.0.0.0" }}
{{- end -}}

{{- /* File name: text, of what ships with the chart and of what was given. */ -}}
{{- define "stormcast.scenarios" -}}
{{- $all := dict -}}
{{- if .Values.controller.shipped -}}
{{- range $path, $bytes := .Files.Glob "scenarios/*.yaml" -}}
{{- $_ := set $all (base $path) (toString $bytes) -}}
{{- end -}}
{{- end -}}
{{- range $name, $text := .Values.controller.scenarios -}}
{{- $_ := set $all (printf "%s.yaml" $name) $text -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{- /* File name: text, of what the controller plays. */ -}}
{{- define "stormcast.played" -}}
{{- if .Values.soak.enabled -}}
storm.yaml: |
  {{- include "stormcast.storm" . | nindent 2 }}
{{- else -}}
{{ include "stormcast.scenarios" . }}
{{- end -}}
{{- end -}}

{{- define "stormcast.storm" -}}
{{- if .Values.soak.storm -}}
{{ .Values.soak.storm }}
{{- else -}}
name: storm
cluster: {members: {{ int .Values.replicas }}, stack: {{ .Values.member.stack }}, timing: {{ .Values.member.timing }}}
{{- end -}}
{{- end -}}

{{- /* Peers of a NetworkPolicy: all pods of some components. Call with a dict: root, components. */ -}}
{{- define "stormcast.pods" -}}
{{- $root := .root -}}
{{- range .components }}
- podSelector:
    matchLabels: {{- include "stormcast.selector" (dict "root" $root "component" .) | nindent 6 }}
{{- end }}
{{- end -}}

{{- /* File name: text, of what members and agents are told. */ -}}
{{- define "stormcast.configs" -}}
member.yaml: |
  {{- include "stormcast.memberConfig" . | nindent 2 }}
{{- if .Values.agent.enabled }}
agent.yaml: |
  table: stormcast
  control: "{{ include "stormcast.listenHost" . }}:7802"
  probes: "{{ include "stormcast.listenHost" . }}:7812"
  token_file: /etc/stormcast/token/token
  {{- if .Values.tls.enabled }}
  certificate_file: /etc/stormcast/tls/tls.crt
  private_key_file: /etc/stormcast/tls/tls.key
  {{- else }}
  tls: none
  {{- end }}
  # Of the only site there is, this pod's own network; --name says whose it is.
  sites: [{name: member}]
{{- end }}
{{- end -}}
