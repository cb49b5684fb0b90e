{{/* Labels of a part: (dict "component" "replica") */}}
{{- define "xylem.labels" -}}
app.kubernetes.io/name: xylem
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "xylem.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What all pods have: who they are, and what they may not. */}}
{{- define "xylem.pod" -}}
# Else a service named xylem would set XYLEM_PORT to an address.
enableServiceLinks: false
automountServiceAccountToken: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
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

{{- define "xylem.database" -}}
- name: XYLEM_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.secret }}
      key: {{ .Values.database.key }}
{{- end }}

{{/* The port and the probes of what serves. It listens before it has opened its models; a store or a database that is
away is no reason to start it again. */}}
{{- define "xylem.serves" -}}
ports:
  - name: http
    containerPort: 8080
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
{{- end }}
