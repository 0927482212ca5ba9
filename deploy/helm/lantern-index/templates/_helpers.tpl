{{- define "lantern-index.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "lantern-index.router" -}}
{{- include "lantern-index.name" . }}-router
{{- end -}}

{{- define "lantern-index.host" -}}
{{- include "lantern-index.router" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "lantern-index.tls" -}}
{{- .Values.tls.secretName | default (printf "%s-tls" (include "lantern-index.router" .)) -}}
{{- end -}}

{{- define "lantern-index.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "lantern-index.labels" -}}
app.kubernetes.io/name: lantern-index
app.kubernetes.io/instance: {{ include "lantern-index.name" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "lantern-index.selector" -}}
app.kubernetes.io/name: lantern-index
app.kubernetes.io/instance: {{ include "lantern-index.name" . }}
app.kubernetes.io/component: router
{{- end -}}

{{- define "lantern-index.builder-selector" -}}
app.kubernetes.io/instance: {{ include "lantern-index.name" . }}
app.kubernetes.io/component: builder
{{- end -}}

{{- define "lantern-index.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "lantern-index.builder" -}}
metadata:
  labels:
    app.kubernetes.io/name: lantern-index
    {{- include "lantern-index.builder-selector" . | nindent 4 }}
    {{- with .Values.builder.labels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with .Values.builder.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.builder.terminationGracePeriodSeconds }}
  {{- with .Values.builder.activeDeadlineSeconds }}
  activeDeadlineSeconds: {{ int64 . }}
  {{- end }}
  {{- with .Values.builder.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.builder.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.builder.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.builder.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: builder
      image: {{ include "lantern-index.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - serve
        - --host=$(POD_IP)
        - --cert=/etc/lantern-index/tls/tls.crt
        - --key=/etc/lantern-index/tls/tls.key
        - --ticket-key=/etc/lantern-index/ticket/key
        {{- if .Values.tokens.secretName }}
        - --token-file=/etc/lantern-index/tokens/tokens
        {{- end }}
        {{- range .Values.builder.args }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: POD_IP
          valueFrom:
            fieldRef: {fieldPath: status.podIP}
      ports:
        - {name: builds, containerPort: 8998}
        - {name: status, containerPort: 8999}
      readinessProbe:
        httpGet: {path: /readyz, port: 8999}
        periodSeconds: 2
      resources: {{- toYaml .Values.builder.resources | nindent 8 }}
      securityContext: {{- include "lantern-index.security" . | nindent 8 }}
      volumeMounts:
        - {name: tls, mountPath: /etc/lantern-index/tls, readOnly: true}
        - {name: ticket, mountPath: /etc/lantern-index/ticket, readOnly: true}
        {{- if .Values.tokens.secretName }}
        - {name: tokens, mountPath: /etc/lantern-index/tokens, readOnly: true}
        {{- end }}
  volumes:
    - name: tls
      secret: {secretName: {{ include "lantern-index.tls" . }}, defaultMode: 288}
    - name: ticket
      secret: {secretName: {{ include "lantern-index.router" . }}-ticket, defaultMode: 288}
    {{- with .Values.tokens.secretName }}
    - name: tokens
      secret: {secretName: {{ . }}, defaultMode: 288}
    {{- end }}
{{- end -}}
