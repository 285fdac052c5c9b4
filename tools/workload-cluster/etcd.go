package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The in-memory etcd keeps its membership in annotations of the etcd pods: a
// pod is a member until it is marked removed, and the pod with the latest
// leader-from time leads.

func etcdPodName(node string) string { return "etcd-" + node }

// etcdMembers lists the pods of the current members.
func (c *cluster) etcdMembers(ctx context.Context) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := c.objects.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": "etcd", "tier": "control-plane"}); err != nil {
		return nil, err
	}
	var members []corev1.Pod
	for _, pod := range pods.Items {
		if _, removed := pod.Annotations[cloudv1.EtcdMemberRemoved]; !removed {
			members = append(members, pod)
		}
	}
	return members, nil
}

// addEtcdMember makes the node's etcd serve; a node that was no member becomes one.
func (c *cluster) addEtcdMember(ctx context.Context, node string) error {
	name := etcdPodName(node)
	certificate, err := c.etcdCA.serve(name, []string{name, node, "localhost", "127.0.0.1", "::1", c.host})
	if err != nil {
		return invalid("the etcd CA of %s cannot sign: %v", c.endpoint, err)
	}
	members, err := c.etcdMembers(ctx)
	if err != nil {
		return err
	}
	cluster := randomID()
	for _, member := range members {
		cluster = member.Annotations[cloudv1.EtcdClusterIDAnnotationName]
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}}
	err = c.objects.Get(ctx, client.ObjectKeyFromObject(pod), pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if _, removed := pod.Annotations[cloudv1.EtcdMemberRemoved]; err != nil || removed {
		fresh := staticPod("etcd", node, true)
		fresh.Annotations[cloudv1.EtcdClusterIDAnnotationName] = cluster
		fresh.Annotations[cloudv1.EtcdMemberIDAnnotationName] = randomID()
		if err := c.put(ctx, fresh); err != nil {
			return err
		}
	}
	c.etcdCerts[name] = certificate
	return c.electLeader(ctx)
}

// electLeader sees to it that a running member leads.
func (c *cluster) electLeader(ctx context.Context) error {
	members, err := c.etcdMembers(ctx)
	if err != nil {
		return err
	}
	var leader, candidate *corev1.Pod
	var since time.Time
	for i := range members {
		pod := &members[i]
		if _, running := c.etcdCerts[pod.Name]; running && candidate == nil {
			candidate = pod
		}
		from, err := time.Parse(time.RFC3339, pod.Annotations[cloudv1.EtcdLeaderFromAnnotationName])
		if err == nil && from.After(since) {
			leader, since = pod, from
		}
	}
	if candidate == nil {
		return nil
	}
	if leader != nil {
		if _, running := c.etcdCerts[leader.Name]; running {
			return nil
		}
	}
	// The times have whole seconds: a later one than the last leader's is needed.
	from := time.Now()
	if !from.Truncate(time.Second).After(since) {
		from = since.Add(time.Second)
	}
	candidate.Annotations[cloudv1.EtcdLeaderFromAnnotationName] = from.Format(time.RFC3339)
	return c.objects.Update(ctx, candidate)
}

// randomID returns an ID that the in-memory etcd can read back.
func randomID() string { return strconv.FormatUint(uint64(rand.Uint32N(1<<31-1))+1, 10) }
