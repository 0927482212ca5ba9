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
{{- if and .Values.tls.secretName .Values.tls.certManager.enabled -}}
{{- fail "tls.secretName names an existing Secret, tls.certManager makes one: set one of the two" -}}
{{- end -}}
{{- .Values.tls.secretName | default (printf "%s-tls" (include "lantern-index.router" .)) -}}
{{- end -}}

{{- define "lantern-index.ticket" -}}
{{- .Values.ticket.secretName | default (printf "%s-ticket" (include "lantern-index.router" .)) -}}
{{- end -}}

{{/* The data of a Secret as JSON; {} if it does not exist, or if Helm is not connected to the cluster. */}}
{{- define "lantern-index.secret-data" -}}
{{- $secret := lookup "v1" "Secret" .namespace .name -}}
{{- if $secret }}{{ $secret.data | default dict | toJson }}{{ else }}{}{{ end -}}
{{- end -}}

{{/* The data of the Secrets that this chart makes, as JSON: that of existing Secrets, or new data, which is kept in .Values.made so
     that all templates of a rendering get the same. */}}
{{- define "lantern-index.made" -}}
{{- if not (hasKey .Values "made") -}}
{{- $ticket := include "lantern-index.secret-data" (dict "namespace" .Release.Namespace "name" (include "lantern-index.ticket" .)) | fromJson -}}
{{- $tls := include "lantern-index.secret-data" (dict "namespace" .Release.Namespace "name" (include "lantern-index.tls" .)) | fromJson -}}
{{- $made := dict -}}
{{- if not .Values.ticket.secretName -}}
{{- $_ := set $made "ticket" (ternary $ticket (dict "key" (randAlphaNum 64 | b64enc)) (hasKey $ticket "key")) -}}
{{- end -}}
{{- if not (or .Values.tls.secretName .Values.tls.certManager.enabled) -}}
{{- $name := include "lantern-index.tls" . -}}
{{- $there := lookup "v1" "Secret" .Release.Namespace $name -}}
{{- /* cert-manager leaves its Secret behind, and Helm does not take over what is not its own. */ -}}
{{- if and $there (ne (dig "metadata" "labels" "app.kubernetes.io/managed-by" "" $there) .Release.Service) -}}
{{- fail (printf "the Secret %s was not made by Helm, but perhaps by cert-manager: name it in tls.secretName, or delete it to have a new one made" $name) -}}
{{- end -}}
{{- if hasKey $tls "tls.key" -}}
{{- $_ := set $made "tls" $tls -}}
{{- else -}}
{{- $names := include "lantern-index.names" . | fromJsonArray -}}
{{- $addresses := prepend (include "lantern-index.addresses" . | fromJsonArray) "127.0.0.1" -}}
{{- $cert := genSelfSignedCert (include "lantern-index.host" .) $addresses $names 3650 -}}
{{- $_ := set $made "tls" (dict "tls.crt" ($cert.Cert | b64enc) "tls.key" ($cert.Key | b64enc)) -}}
{{- end -}}
{{- end -}}
{{- /* `lookup` of a list is true, even if the list is empty, only if Helm is connected to a cluster. */ -}}
{{- if and $made (not (or .Values.secrets.generate (lookup "v1" "Secret" .Release.Namespace ""))) -}}
{{- fail "only `helm install` and `helm upgrade` can look up whether the Secrets of this release exist: name yours in ticket.secretName and tls.secretName, or have new ones made each time with secrets.generate=true" -}}
{{- end -}}
{{- $_ := set .Values "made" $made -}}
{{- end -}}
{{- .Values.made | toJson -}}
{{- end -}}

{{- define "lantern-index.names" -}}
{{- $host := include "lantern-index.host" . -}}
{{- $names := list $host (printf "%s.cluster.local" $host) "localhost" -}}
{{- $addresses := include "lantern-index.addresses" . | fromJsonArray -}}
{{- range .Values.tls.names -}}
{{- if not (has . $addresses) -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* The IP addresses among tls.names, as JSON. */}}
{{- define "lantern-index.addresses" -}}
{{- $addresses := list -}}
{{- range .Values.tls.names -}}
{{- if regexMatch "^[0-9.]+$|:" . -}}
{{- $addresses = append $addresses . -}}
{{- end -}}
{{- end -}}
{{- $addresses | toJson -}}
{{- end -}}

{{/* A size such as 16GB in bytes. */}}
{{- define "lantern-index.bytes" -}}
{{- $unit := regexFind "[kMGT]B$" . -}}
{{- mul (regexFind "^[0-9]+" . | int64) (get (dict "kB" 1024 "MB" 1048576 "GB" 1073741824 "TB" 1099511627776) $unit | int64) -}}
{{- end -}}

{{/* The key, in the Secret for TLS, of the certificate by which the router verifies builders. */}}
{{- define "lantern-index.ca-key" -}}
{{- if .Values.tls.caKey -}}
{{- .Values.tls.caKey -}}
{{- else if .Values.tls.certManager.enabled -}}
ca.crt
{{- else if and .Values.tls.secretName (hasKey (include "lantern-index.secret-data" (dict "namespace" .Release.Namespace "name" .Values.tls.secretName) | fromJson) "ca.crt") -}}
ca.crt
{{- else -}}
tls.crt
{{- end -}}
{{- end -}}

{{/* A hash of the Secrets of builders, as far as Helm can look them up. */}}
{{- define "lantern-index.builder-secrets" -}}
{{- $seen := list (include "lantern-index.made" .) -}}
{{- range list .Values.ticket.secretName (ternary (include "lantern-index.tls" .) .Values.tls.secretName .Values.tls.certManager.enabled) -}}
{{- if . -}}
{{- $seen = append $seen (include "lantern-index.secret-data" (dict "namespace" $.Release.Namespace "name" .)) -}}
{{- end -}}
{{- end -}}
{{- $seen | toJson | sha256sum -}}
{{- end -}}

{{/* The same for routers, which also have the Secrets that authenticate clients. */}}
{{- define "lantern-index.router-secrets" -}}
{{- $seen := list (include "lantern-index.builder-secrets" .) -}}
{{- range list .Values.tokens.secretName .Values.clientCa.secretName -}}
{{- if . -}}
{{- $seen = append $seen (include "lantern-index.secret-data" (dict "namespace" $.Release.Namespace "name" .)) -}}
{{- end -}}
{{- end -}}
{{- $seen | toJson | sha256sum -}}
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

{{- define "lantern-index.maintain-selector" -}}
app.kubernetes.io/name: lantern-index
app.kubernetes.io/instance: {{ include "lantern-index.name" . }}
app.kubernetes.io/component: maintain
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
  annotations:
    checksum/secrets: {{ include "lantern-index.builder-secrets" . }}
    {{- with .Values.builder.annotations }}{{ toYaml . | nindent 4 }}{{ end }}
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
        - --drain-timeout={{ sub .Values.builder.terminationGracePeriodSeconds 5 }}s
        {{- if .Values.builder.spoolSize }}
        - --spool-dir=/var/spool/lantern-index
        {{- end }}
        {{- range .Values.builder.args }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: POD_IP
          valueFrom:
            fieldRef: {fieldPath: status.podIP}
        {{- with .Values.router.idleTimeout }}
        - {name: LANTERN_INDEX_IDLE_TIMEOUT, value: {{ . | quote }}}
        {{- end }}
        {{- with .Values.router.maxBuildTime }}
        - {name: LANTERN_INDEX_MAX_BUILD_TIME, value: {{ . | quote }}}
        {{- end }}
      ports:
        - {name: builds, containerPort: 8998}
        - {name: status, containerPort: 8999}
      readinessProbe:
        httpGet: {path: /readyz, port: 8999}
        periodSeconds: 2
      {{- $resources := deepCopy (default dict .Values.builder.resources) }}
      {{- with .Values.builder.spoolSize }}
      {{- $_ := set $resources "requests" (merge (default dict $resources.requests) (dict "ephemeral-storage" .)) }}
      {{- end }}
      resources: {{- toYaml $resources | nindent 8 }}
      securityContext: {{- include "lantern-index.security" . | nindent 8 }}
      volumeMounts:
        - {name: tls, mountPath: /etc/lantern-index/tls, readOnly: true}
        - {name: ticket, mountPath: /etc/lantern-index/ticket, readOnly: true}
        {{- if .Values.builder.spoolSize }}
        - {name: spool, mountPath: /var/spool/lantern-index}
        {{- end }}
  volumes:
    - name: tls
      secret: {secretName: {{ include "lantern-index.tls" . }}, defaultMode: 288}
    - name: ticket
      secret: {secretName: {{ include "lantern-index.ticket" . }}, defaultMode: 288}
    {{- with .Values.builder.spoolSize }}
    - name: spool
      emptyDir: {sizeLimit: {{ . | quote }}}
    {{- end }}
{{- end -}}
