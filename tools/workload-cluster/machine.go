package main

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// machine is what a guest tells of itself, as its kubelet would.
type machine struct {
	NodeName          string            `json:"nodeName"`
	ProviderID        string            `json:"providerID,omitempty"`
	KubernetesVersion string            `json:"kubernetesVersion"`
	SystemUUID        string            `json:"systemUUID,omitempty"`
	Addresses         []string          `json:"addresses"`
	Labels            map[string]string `json:"labels,omitempty"`
	Taints            []corev1.Taint    `json:"taints,omitempty"`
}

// discovery is how a joining machine finds and trusts its cluster.
type discovery struct {
	Token        string   `json:"token"`
	CACertHashes []string `json:"caCertHashes,omitempty"`
}

// controlPlaneMachine is a machine that ran kubeadm init, or kubeadm join with
// a control plane section.
type controlPlaneMachine struct {
	machine
	ClusterName string `json:"clusterName,omitempty"`
	// Init is true for kubeadm init; otherwise Discovery is needed.
	Init      bool       `json:"init"`
	Discovery *discovery `json:"discovery,omitempty"`
	// PKI holds PEM texts by their path below /etc/kubernetes/pki.
	PKI map[string]string `json:"pki"`
	// CertSANs are further names of the API server's certificate.
	CertSANs []string `json:"certSANs,omitempty"`
	// ClusterConfiguration is kubeadm's document, kept in the kubeadm-config ConfigMap.
	ClusterConfiguration string `json:"clusterConfiguration,omitempty"`
}

// workerMachine is a machine that ran kubeadm join.
type workerMachine struct {
	machine
	Discovery discovery `json:"discovery"`
}

func (m *machine) check() error {
	if faults := validation.IsDNS1123Subdomain(m.NodeName); len(faults) > 0 {
		return invalid("nodeName %q is not a node name: %s", m.NodeName, strings.Join(faults, "; "))
	}
	if !strings.HasPrefix(m.KubernetesVersion, "v") {
		return invalid("kubernetesVersion %q of node %s does not look like v1.34.4", m.KubernetesVersion, m.NodeName)
	}
	for _, address := range m.Addresses {
		if _, err := netip.ParseAddr(address); err != nil {
			return invalid("address %q of node %s is not an IP address", address, m.NodeName)
		}
	}
	for key, value := range m.Labels {
		if faults := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(faults) > 0 {
			return invalid("label %s=%s of node %s: %s", key, value, m.NodeName, strings.Join(faults, "; "))
		}
	}
	return nil
}
