package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// The static pods of a control-plane node besides etcd.
var controlPlaneComponents = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

func nodeIsReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// putNode registers a node, or lets a kubelet that came back report again.
func (c *cluster) putNode(ctx context.Context, machine machine, controlPlane bool) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machine.NodeName}}
	err := c.objects.Get(ctx, client.ObjectKeyFromObject(node), node)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if node.UID == "" {
		node.UID = uuid.NewUUID()
		node.Spec.Taints = machine.Taints
	}
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	maps.Copy(node.Labels, map[string]string{
		"kubernetes.io/arch":     "amd64",
		"kubernetes.io/os":       "linux",
		"kubernetes.io/hostname": machine.NodeName,
	})
	maps.Copy(node.Labels, machine.Labels)
	if controlPlane {
		node.Labels[controlPlaneLabel] = ""
	}
	// A kubelet never changes a provider ID that is set.
	if node.Spec.ProviderID == "" {
		node.Spec.ProviderID = machine.ProviderID
	}
	node.Status = nodeStatus(machine)
	return c.put(ctx, node)
}

func nodeStatus(machine machine) corev1.NodeStatus {
	status := corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{},
		Conditions: []corev1.NodeCondition{
			nodeCondition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
			nodeCondition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
			nodeCondition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
			nodeCondition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
		},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion:          machine.KubernetesVersion,
			KubeProxyVersion:        machine.KubernetesVersion,
			SystemUUID:              machine.SystemUUID,
			OperatingSystem:         "linux",
			Architecture:            "amd64",
			ContainerRuntimeVersion: "containerd://2.1.0",
		},
	}
	for _, address := range machine.Addresses {
		status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: machine.NodeName})
	return status
}

func nodeCondition(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
	now := metav1.Now()
	return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: now, LastHeartbeatTime: now}
}

// silenceNode does to a Node object what the node controller does when the kubelet falls silent.
func (c *cluster) silenceNode(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := c.objects.Get(ctx, client.ObjectKeyFromObject(node), node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range node.Status.Conditions {
		node.Status.Conditions[i] = nodeCondition(node.Status.Conditions[i].Type, corev1.ConditionUnknown, "NodeStatusUnknown")
	}
	return c.objects.Update(ctx, node)
}

// staticPod is the mirror pod of a control-plane component on a node.
func staticPod(component, node string, ready bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	now := metav1.Now()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem,
			Name:      component + "-" + node,
			UID:       uuid.NewUUID(),
			Labels:    map[string]string{"component": component, "tier": "control-plane"},
			// By these a drain knows that the pod cannot be evicted.
			Annotations: map[string]string{
				corev1.MirrorPodAnnotationKey: "static",
				"kubernetes.io/config.source": "file",
			},
		},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: component}},
		},
		Status: corev1.PodStatus{
			Phase:     corev1.PodRunning,
			StartTime: &now,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now},
				{Type: corev1.ContainersReady, Status: status, LastTransitionTime: now},
				{Type: corev1.PodReady, Status: status, LastTransitionTime: now},
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
			},
		},
	}
}

// putControlPlanePods brings the node's static pods to the state of its machine.
func (c *cluster) putControlPlanePods(ctx context.Context, machine machine, ready bool) error {
	for _, component := range controlPlaneComponents {
		if err := c.put(ctx, staticPod(component, machine.NodeName, ready)); err != nil {
			return err
		}
	}
	// The etcd pod's annotations are the membership, so it is changed, not replaced.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: etcdPodName(machine.NodeName)}}
	if err := c.objects.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	pod.Status = staticPod("etcd", machine.NodeName, ready).Status
	return c.objects.Update(ctx, pod)
}

// collectPods deletes the pods of a destroyed machine once its Node object is
// gone. The pod of an etcd member that nobody removed stays: a member is
// removed from its cluster by the others, not by its own end.
func (c *cluster) collectPods(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.objects.Get(ctx, client.ObjectKeyFromObject(node), node); !apierrors.IsNotFound(err) {
		return err
	}
	pods := &corev1.PodList{}
	if err := c.objects.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		_, removed := pod.Annotations[cloudv1.EtcdMemberRemoved]
		if pod.Spec.NodeName != name || (pod.Labels["component"] == "etcd" && !removed) {
			continue
		}
		if err := c.objects.Delete(ctx, pod); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// createFoundation makes what kubeadm init leaves in a new cluster and the
// Cluster API providers look for.
func (c *cluster) createFoundation(ctx context.Context, machine controlPlaneMachine) error {
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uuid.NewUUID()}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
		if err := c.put(ctx, namespace); err != nil {
			return err
		}
	}
	version := machine.KubernetesVersion
	system := metav1.NamespaceSystem
	objects := []client.Object{
		configMap(system, "kubeadm-config", map[string]string{"ClusterConfiguration": machine.ClusterConfiguration}),
		configMap(system, "kubelet-config", map[string]string{"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"}),
		configMap(system, "coredns", map[string]string{"Corefile": ".:53 {\n    errors\n    health\n    ready\n    forward . /etc/resolv.conf\n    cache 30\n}\n"}),
		configMap(metav1.NamespacePublic, "cluster-info", map[string]string{"kubeconfig": c.publicKubeconfig()}),
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:get-nodes"},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:get-nodes"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubeadm:get-nodes"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "system:bootstrappers:kubeadm:default-node-token"}},
		},
		&appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "kube-proxy", Labels: map[string]string{"k8s-app": "kube-proxy"}},
			Spec:       appsv1.DaemonSetSpec{Template: podTemplate("kube-proxy", "registry.k8s.io/kube-proxy:"+version)},
		},
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "coredns", Labels: map[string]string{"k8s-app": "kube-dns"}},
			Spec:       appsv1.DeploymentSpec{Template: podTemplate("coredns", "registry.k8s.io/coredns/coredns:v1.12.1")},
		},
	}
	for _, object := range objects {
		if err := c.put(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func configMap(namespace, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
}

func podTemplate(name, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: image}}}}
}

// publicKubeconfig is what anyone may know of the cluster: where it is and its CA.
func (c *cluster) publicKubeconfig() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.ca.certificate.Raw})
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: https://%s\n    certificate-authority-data: %s\n", c.endpoint, base64Text(ca))
}
