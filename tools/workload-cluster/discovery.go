package main

import (
	"context"
	"crypto/subtle"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A bootstrap token, as the Kubernetes documentation defines it.
var bootstrapToken = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)

// admit lets a machine join: the API server answers, its CA is the pinned one,
// the token exists in kube-system, and no live node has the name.
func (c *cluster) admit(ctx context.Context, name string, discovery discovery) error {
	if c.server == nil {
		return unavailable("no API server answers at %s", c.endpoint)
	}
	if len(discovery.CACertHashes) > 0 && !slices.Contains(discovery.CACertHashes, c.ca.hash()) {
		return conflict("kubeadm join of node %s: none of the pinned CA hashes is that of the cluster at %s", name, c.endpoint)
	}
	if err := c.checkToken(ctx, discovery.Token); err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := c.objects.Get(ctx, client.ObjectKeyFromObject(node), node)
	if err == nil && nodeIsReady(node) {
		return conflict("a Node with name %q and status \"Ready\" already exists in the cluster", name)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (c *cluster) checkToken(ctx context.Context, token string) error {
	parts := bootstrapToken.FindStringSubmatch(token)
	if parts == nil {
		return invalid("the bootstrap token is not of the form abcdef.0123456789abcdef")
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + parts[1]}}
	err := c.objects.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if apierrors.IsNotFound(err) {
		return unauthorized("could not find a JWS signature in the cluster-info ConfigMap for token ID %q", parts[1])
	}
	if err != nil {
		return err
	}
	// The in-memory server keeps stringData as it came.
	value := func(key string) string {
		if text, ok := secret.StringData[key]; ok {
			return text
		}
		return string(secret.Data[key])
	}
	if subtle.ConstantTimeCompare([]byte(value("token-secret")), []byte(parts[2])) != 1 {
		return unauthorized("the secret of bootstrap token %q is not the one in kube-system", parts[1])
	}
	if value("usage-bootstrap-authentication") != "true" {
		return unauthorized("bootstrap token %q may not authenticate", parts[1])
	}
	if expiry := value("expiration"); expiry != "" {
		until, err := time.Parse(time.RFC3339, expiry)
		if err != nil || !time.Now().Before(until) {
			return unauthorized("bootstrap token %q expired at %s", parts[1], expiry)
		}
	}
	return nil
}
