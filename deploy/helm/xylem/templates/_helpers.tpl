{{/* What tells the objects of this release from another's in the same namespace. */}}
{{- define "xylem.release" -}}
app.kubernetes.io/name: xylem
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of a part: (dict "root" $ "component" "replica") */}}
{{- define "xylem.labels" -}}
{{ include "xylem.release" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The labels and annotations of a part's pods: (dict "root" $ "component" "replica" "part" .Values.replicas) */}}
{{- define "xylem.podMetadata" -}}
labels:
  {{- include "xylem.labels" . | nindent 2 }}
annotations:
  # a changed config makes new pods: they read it only when they start
  checksum/config: {{ .root.Values.config | toJson | sha256sum }}
  {{- with default .root.Values.podAnnotations .part.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "xylem.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary .Release.Name "" .Values.serviceAccount.create) }}
{{- end }}

{{- define "xylem.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What all pods have: who they are, where they run, and what they may not: (dict "root" $ "part" .Values.replicas).
What a part says goes before what is said for all. */}}
{{- define "xylem.pod" -}}
{{- $part := .part -}}
{{- with .root -}}
# Else a service named xylem would set XYLEM_PORT to an address.
enableServiceLinks: false
automountServiceAccountToken: false
{{- with include "xylem.serviceAccount" . }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default .Values.priorityClassName $part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with default .Values.nodeSelector $part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default .Values.tolerations $part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default .Values.affinity $part.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end }}
{{- end }}

{{- define "xylem.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
envFrom:
  - configMapRef:
      name: {{ .Release.Name }}
{{- end }}

{{/* The variables of all containers: (dict "root" $ "part" .Values.replicas). What a template sets after these wins. */}}
{{- define "xylem.env" -}}
- name: XYLEM_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .root.Values.database.secret }}
      key: {{ .root.Values.database.key }}
{{- with concat .root.Values.extraEnv (default list .part.extraEnv) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The ports and the probes of what serves: (dict "grpcPort" 0), or none. It listens before it has opened its models; a store or a database that is
away is no reason to start it again. */}}
{{- define "xylem.serves" -}}
ports:
  - name: http
    containerPort: 8080
  {{- with .grpcPort }}
  - name: grpc
    containerPort: {{ . }}
  {{- end }}
startupProbe:
  httpGet:
    path: /livez
    port: http
  periodSeconds: 2
  failureThreshold: 150
readinessProbe:
  httpGet:
    path: /readyz
    port: http
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet:
    path: /livez
    port: http
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "xylem.storeVolume" -}}
- name: store
  persistentVolumeClaim:
    claimName: {{ .Values.store.existingClaim | default (printf "%s-store" .Release.Name) }}
{{- end }}

{{- define "xylem.writerVolumes" -}}
{{ include "xylem.storeVolume" . }}
- name: data
  persistentVolumeClaim:
    claimName: {{ .Values.data.existingClaim | default (printf "%s-data" .Release.Name) }}
- name: temporary
  emptyDir: {}
{{- end }}

{{- define "xylem.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  labels:
    {{- include "xylem.labels" . | nindent 4 }}
spec:
  selector:
    {{- include "xylem.labels" . | nindent 4 }}
  ports:
    - name: http
      port: 8080
      targetPort: http
    {{- with .grpcPort }}
    - name: grpc
      port: {{ . }}
      targetPort: grpc
      appProtocol: grpc
    {{- end }}
{{- end }}

{{/* Volumes of yours, and where they are in the container: (dict "root" $ "part" .Values.replicas). Those of all pods and of the part add up. */}}
{{- define "xylem.extraVolumes" -}}
{{- with concat .root.Values.extraVolumes (default list .part.extraVolumes) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "xylem.extraVolumeMounts" -}}
{{- with concat .root.Values.extraVolumeMounts (default list .part.extraVolumeMounts) }}
{{ toYaml . }}
{{- end }}
{{- end }}
