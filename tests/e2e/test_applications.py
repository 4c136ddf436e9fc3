"""An application of the shape of published manifests: database, agents, jobs, and what they need around their pods."""

from __future__ import annotations

import json

APPLICATION = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: example.com/disk
parameters: {type: ssd}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: db}
data: {primary.cnf: "[server]\\nlog-bin", replica.cnf: "[server]\\nread-only"}
---
apiVersion: v1
kind: Service
metadata: {name: db, labels: {app: db}}
spec:
  clusterIP: None
  selector: {app: db}
  ports: [{name: sql, port: 3306}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: db}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app: db}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 3
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 10
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - labelSelector: {matchExpressions: [{key: app, operator: In, values: [db]}]}
            topologyKey: kubernetes.io/hostname
      securityContext: {runAsUser: 1000, fsGroup: 1000}
      initContainers:
      - name: configure
        image: db:8
        command: [bash, -c, set -ex]
        volumeMounts: [{name: config, mountPath: /etc/db}]
      containers:
      - name: db
        image: db:8
        ports: [{name: sql, containerPort: 3306}]
        env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        resources: {requests: {cpu: 500m, memory: 1Gi}}
        livenessProbe: {exec: {command: [ping]}, initialDelaySeconds: 30}
        readinessProbe: {tcpSocket: {port: sql}, periodSeconds: 2}
        volumeMounts: [{name: data, mountPath: /var/lib/db, subPath: db}]
      - {name: backup, image: "backup:2"}
      volumes:
      - {name: config, configMap: {name: db}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 10Gi}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs, namespace: kube-system, labels: {k8s-app: logs}}
spec:
  selector: {matchLabels: {name: logs}}
  template:
    metadata: {labels: {name: logs}}
    spec:
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}]
      containers:
      - name: logs
        image: logs:2
        resources: {limits: {memory: 200Mi}, requests: {cpu: 100m, memory: 200Mi}}
        volumeMounts: [{name: varlog, mountPath: /var/log}]
      volumes:
      - {name: varlog, hostPath: {path: /var/log}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: load}
spec:
  completions: 4
  parallelism: 2
  completionMode: Indexed
  backoffLimitPerIndex: 1
  podFailurePolicy:
    rules:
    - {action: FailIndex, onExitCodes: {containerName: main, operator: In, values: [42]}}
    - {action: Ignore, onPodConditions: [{type: DisruptionTarget, status: "True"}]}
  successPolicy: {rules: [{succeededIndexes: 0-2}]}
  template:
    spec:
      restartPolicy: Never
      initContainers: [{name: input, image: "busybox:1"}]
      containers: [{name: main, image: "busybox:1", command: [rev]}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: hello}
spec:
  schedule: "*/1 * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: OnFailure
          containers: [{name: hello, image: "busybox:1", command: [/bin/sh, -c, date]}]
"""


def test_application_comes_up_unchanged(kubeloop, tmp_path):
    manifest = tmp_path / "application.yaml"
    manifest.write_text(APPLICATION)
    result = kubeloop.run("up", "--once", "--json", "-f", manifest)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["statefulSets"] == [{"namespace": "default", "name": "db", "replicas": 3, "available": 3}]
    assert document["daemonSets"] == [{"namespace": "kube-system", "name": "logs", "replicas": 5, "available": 5}]
    assert [(job["name"], job["available"] >= 3) for job in document["jobs"]] == [("load", True)]
    db_nodes = {pod["node"] for pod in document["pods"] if pod["name"].startswith("db-")}
    assert len(db_nodes) == 3, "one per node, by the anti-affinity"
