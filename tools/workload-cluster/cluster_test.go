package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server/proxy"
)

const token = "abcdef.0123456789abcdef"

// site is the HTTP API with one cluster's authorities and an endpoint of its own.
type site struct {
	t        *testing.T
	api      *httptest.Server
	clusters *clusters
	endpoint string
	ca, etcd pair
}

// pair is a certificate authority as PEM and as its parts.
type pair struct {
	certPEM, keyPEM string
	certificate     *x509.Certificate
	key             *ecdsa.PrivateKey
}

func newSite(t *testing.T) *site {
	t.Helper()
	clusters, err := newClusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(clusters.close)
	api := httptest.NewServer(newAPI(clusters))
	t.Cleanup(api.Close)
	return &site{t, api, clusters, freeEndpoint(t), newPair(t, "kubernetes"), newPair(t, "etcd-ca")}
}

// freeEndpoint finds a port that nobody has, on a loopback address other than 127.0.0.1.
func freeEndpoint(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.31.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func newPair(t *testing.T, name string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, _ := x509.ParseCertificate(der)
	keyDER, _ := x509.MarshalECPrivateKey(key)
	return pair{
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})),
		certificate, key,
	}
}

// client issues a client certificate.
func (p pair) client(t *testing.T) (certPEM, keyPEM []byte) {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.certificate, key.Public(), p.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, _ := x509.MarshalECPrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func (s *site) pki() map[string]string {
	return map[string]string{"ca.crt": s.ca.certPEM, "ca.key": s.ca.keyPEM, "etcd/ca.crt": s.etcd.certPEM, "etcd/ca.key": s.etcd.keyPEM}
}

// call returns the status and the error text.
func (s *site) call(method, path string, body any) (int, string) {
	s.t.Helper()
	data, _ := json.Marshal(body)
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.api.URL+"/v1/clusters/"+s.endpoint+path, bytes.NewReader(data))
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Error string `json:"error"`
	}
	_ = json.NewDecoder(response.Body).Decode(&answer)
	return response.StatusCode, answer.Error
}

func (s *site) must(method, path string, body any) {
	s.t.Helper()
	if status, text := s.call(method, path, body); status != http.StatusOK {
		s.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
}

func (s *site) refused(want int, fragment, method, path string, body any) {
	s.t.Helper()
	status, text := s.call(method, path, body)
	if status != want || !strings.Contains(text, fragment) {
		s.t.Fatalf("%s %s: got %d %q, want %d with %q", method, path, status, text, want, fragment)
	}
}

func guest(name, address string) machine {
	return machine{NodeName: name, ProviderID: "proxmox://" + name, KubernetesVersion: "v1.34.4", Addresses: []string{address}}
}

func (s *site) initBody(name string) controlPlaneMachine {
	return controlPlaneMachine{
		machine: guest(name, "10.0.0.1"), ClusterName: "one", Init: true, PKI: s.pki(),
		ClusterConfiguration: "apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nclusterName: one\n",
	}
}

func (s *site) joinBody(name string) controlPlaneMachine {
	return controlPlaneMachine{machine: guest(name, "10.0.0.2"), Discovery: &discovery{Token: token}, PKI: s.pki()}
}

func (s *site) view() clusterView {
	s.t.Helper()
	response, err := http.Get(s.api.URL + "/v1/clusters/" + s.endpoint)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	var view clusterView
	if err := json.NewDecoder(response.Body).Decode(&view); err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("view: %d %v", response.StatusCode, err)
	}
	return view
}

func (s *site) config() *rest.Config {
	cert, key := s.ca.client(s.t)
	return &rest.Config{Host: "https://" + s.endpoint, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(s.ca.certPEM), CertData: cert, KeyData: key}}
}

func (s *site) kubernetes() *kubernetes.Clientset {
	s.t.Helper()
	set, err := kubernetes.NewForConfig(s.config())
	if err != nil {
		s.t.Fatal(err)
	}
	return set
}

// createToken does what the kubeadm bootstrap provider does before a join.
func (s *site) createToken(expires time.Time) {
	s.t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"},
		Type:       corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
			"expiration": []byte(expires.UTC().Format(time.RFC3339)),
		},
	}
	if _, err := s.kubernetes().CoreV1().Secrets("kube-system").Create(s.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// etcdClient reaches a member as the kubeadm control plane does, by a port forward to its pod.
func (s *site) etcdClient(node string) (*clientv3.Client, error) {
	s.t.Helper()
	dialer, err := proxy.NewDialer(proxy.Proxy{Kind: "pods", Namespace: "kube-system", KubeConfig: s.config(), Port: 2379})
	if err != nil {
		s.t.Fatal(err)
	}
	cert, key := s.etcd.client(s.t)
	certificate, err := tls.X509KeyPair(cert, key)
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.etcd.certificate)
	name := etcdPodName(node)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{name}, DialTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithBlock(), grpc.WithContextDialer(dialer.DialContextWithAddr)},
		TLS:         &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	})
	if err == nil {
		s.t.Cleanup(func() { _ = client.Close() })
	}
	return client, err
}

func TestControlPlaneOfThreeAndBack(t *testing.T) {
	s := newSite(t)
	s.must("POST", "/control-plane", s.initBody("cp-1"))
	s.createToken(time.Now().Add(time.Hour))
	s.must("POST", "/control-plane", s.joinBody("cp-2"))
	s.must("POST", "/control-plane", s.joinBody("cp-3"))
	if got := s.view().EtcdMembers; !slices.Equal(got, []string{"cp-1", "cp-2", "cp-3"}) {
		t.Fatalf("members %v", got)
	}

	etcd, err := s.etcdClient("cp-2")
	if err != nil {
		t.Fatal(err)
	}
	members, err := etcd.MemberList(t.Context())
	if err != nil || len(members.Members) != 3 {
		t.Fatalf("members %v, %v", members, err)
	}
	for _, member := range members.Members {
		switch member.Name {
		case "cp-2":
			if _, err := etcd.MoveLeader(t.Context(), member.ID); err != nil {
				t.Fatal(err)
			}
		case "cp-1":
			if _, err := etcd.MemberRemove(t.Context(), member.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.must("DELETE", "/nodes/cp-1", nil)
	if err := s.kubernetes().CoreV1().Nodes().Delete(t.Context(), "cp-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	pods, err := s.kubernetes().CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 8 {
		t.Fatalf("%d pods are left, %v", len(pods.Items), err)
	}
	if got := s.view().EtcdMembers; !slices.Equal(got, []string{"cp-2", "cp-3"}) {
		t.Fatalf("members %v", got)
	}
}

func TestWhatTheProvidersLookFor(t *testing.T) {
	s := newSite(t)
	body := s.initBody("cp-1")
	body.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	s.must("POST", "/control-plane", body)
	set := s.kubernetes()
	node, err := set.CoreV1().Nodes().Get(t.Context(), "cp-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, labelled := node.Labels["node-role.kubernetes.io/control-plane"]
	if !labelled || !nodeIsReady(node) || node.Spec.ProviderID != "proxmox://cp-1" || node.Status.Addresses[0].Address != "10.0.0.1" || len(node.Spec.Taints) != 1 {
		t.Fatalf("node %+v", node)
	}
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
		if _, err := set.CoreV1().Pods("kube-system").Get(t.Context(), component+"-cp-1", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	config, err := set.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "kubeadm-config", metav1.GetOptions{})
	if err != nil || !strings.Contains(config.Data["ClusterConfiguration"], "clusterName: one") {
		t.Fatalf("kubeadm-config %v, %v", config, err)
	}
	version, err := set.ServerVersion()
	if err != nil || version.GitVersion != "v1.34.4" || version.Minor != "34" {
		t.Fatalf("version %v, %v", version, err)
	}
	connection, err := tls.Dial("tcp", s.endpoint, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if name := connection.ConnectionState().PeerCertificates[0].Subject.CommonName; name != "kube-apiserver" {
		t.Fatalf("common name %s", name)
	}
}

func TestStrangersAreTurnedAway(t *testing.T) {
	s := newSite(t)
	s.must("POST", "/control-plane", s.initBody("cp-1"))
	anonymous := s.config()
	anonymous.CertData, anonymous.KeyData = nil, nil
	set, _ := kubernetes.NewForConfig(anonymous)
	if _, err := set.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Fatalf("anonymous: %v", err)
	}
	stranger := s.config()
	stranger.CertData, stranger.KeyData = s.etcd.client(t)
	set, _ = kubernetes.NewForConfig(stranger)
	if _, err := set.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Fatal("a certificate of another authority was accepted")
	}
}

func TestJoinNeedsAKnownToken(t *testing.T) {
	s := newSite(t)
	worker := workerMachine{machine: guest("w-1", "10.0.0.9"), Discovery: discovery{Token: token}}
	s.refused(503, "no API server answers", "POST", "/worker", worker)
	s.must("POST", "/control-plane", s.initBody("cp-1"))
	s.refused(401, `token ID "abcdef"`, "POST", "/worker", worker)
	s.createToken(time.Now().Add(time.Hour))
	wrong := worker
	wrong.Discovery.Token = "abcdef.ffffffffffffffff"
	s.refused(401, "not the one in kube-system", "POST", "/worker", wrong)
	pinned := worker
	pinned.Discovery.CACertHashes = []string{"sha256:00"}
	s.refused(409, "CA hashes", "POST", "/worker", pinned)
	pinned.Discovery.CACertHashes = []string{authority{s.ca.certificate, s.ca.key}.hash()}
	s.must("POST", "/worker", pinned)
	s.refused(409, "already exists in the cluster", "POST", "/worker", worker)
}

func TestJoinRefusesAnExpiredToken(t *testing.T) {
	s := newSite(t)
	s.must("POST", "/control-plane", s.initBody("cp-1"))
	s.createToken(time.Now().Add(-time.Minute))
	s.refused(401, "expired", "POST", "/worker", workerMachine{machine: guest("w-1", "10.0.0.9"), Discovery: discovery{Token: token}})
}

func TestJoinRefusesForeignAuthorities(t *testing.T) {
	s := newSite(t)
	s.must("POST", "/control-plane", s.initBody("cp-1"))
	s.createToken(time.Now().Add(time.Hour))
	body := s.joinBody("cp-2")
	body.PKI["ca.crt"], body.PKI["ca.key"] = s.etcd.certPEM, s.etcd.keyPEM
	s.refused(409, "certificate authorities are not those", "POST", "/control-plane", body)
}

func TestBrokenInitLeavesNothing(t *testing.T) {
	s := newSite(t)
	body := s.initBody("cp-1")
	body.PKI["ca.key"] = s.etcd.keyPEM
	s.refused(400, "does not belong to ca.crt", "POST", "/control-plane", body)
	body = s.initBody("cp-1")
	delete(body.PKI, "etcd/ca.key")
	s.refused(400, "etcd/ca.key is missing", "POST", "/control-plane", body)
	holder, err := net.Listen("tcp", s.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	s.refused(409, "cannot open the API server", "POST", "/control-plane", s.initBody("cp-1"))
	_ = holder.Close()
	s.must("POST", "/control-plane", s.initBody("cp-1"))
	s.must("POST", "/control-plane", s.initBody("cp-1"))
	s.refused(409, "already exists", "POST", "/control-plane", s.initBody("cp-2"))
}

func TestMachinesStopStartAndEnd(t *testing.T) {
	s := newSite(t)
	s.must("POST", "/control-plane", s.initBody("cp-1"))
	s.createToken(time.Now().Add(time.Hour))
	s.must("POST", "/worker", workerMachine{machine: guest("w-1", "10.0.0.9"), Discovery: discovery{Token: token}})

	s.must("POST", "/nodes/w-1/stop", nil)
	if w := s.view().Nodes[1]; w.Ready || w.Machine != "stopped" || !w.Registered {
		t.Fatalf("stopped worker %+v", w)
	}
	s.must("POST", "/nodes/w-1/start", nil)
	if w := s.view().Nodes[1]; !w.Ready || w.Machine != "running" {
		t.Fatalf("started worker %+v", w)
	}
	s.must("POST", "/nodes/cp-1/stop", nil)
	if s.view().Serving {
		t.Fatal("the API server answers though its machine is off")
	}
	s.refused(503, "no API server answers", "POST", "/worker", workerMachine{machine: guest("w-2", "10.0.0.8"), Discovery: discovery{Token: token}})
	s.must("POST", "/nodes/cp-1/start", nil)
	if _, err := s.kubernetes().CoreV1().Nodes().Get(t.Context(), "w-1", metav1.GetOptions{}); err != nil {
		t.Fatalf("the data did not survive: %v", err)
	}
	s.must("DELETE", "/nodes/w-1", nil)
	s.must("DELETE", "/nodes/w-1", nil)
	if w := s.view().Nodes[1]; w.Ready || w.Machine != "none" || !w.Registered {
		t.Fatalf("destroyed worker %+v", w)
	}
	s.must("DELETE", "/nodes/cp-1", nil)
	s.refused(404, "no workload cluster", "GET", "", nil)
}

// Whoever found a cluster just before its end is told the same as who comes later.
func TestTheEndOfAClusterIsOneMoment(t *testing.T) {
	s := newSite(t)
	s.must("POST", "/control-plane", s.initBody("cp-1"))
	s.createToken(time.Now().Add(time.Hour))
	s.must("POST", "/worker", workerMachine{machine: guest("w-1", "10.0.0.9"), Discovery: discovery{Token: token}})
	found, err := s.clusters.find(s.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	s.must("DELETE", "/nodes/cp-1", nil)
	absent := func(err error) {
		t.Helper()
		var refusal *refusal
		if !errors.As(err, &refusal) || refusal.status != http.StatusNotFound {
			t.Fatalf("an ended cluster answers %v", err)
		}
	}
	_, err = found.view()
	absent(err)
	absent(found.stopMachine(t.Context(), "w-1"))
	absent(found.startMachine(t.Context(), "w-1"))
	if err := found.destroyMachine(t.Context(), "w-1"); err != nil {
		t.Fatal(err)
	}
	if err := found.nodeDeleted(t.Context(), "w-1"); err != nil {
		t.Fatal(err)
	}
}

// Cluster API patches nodes; what is stored then has lost its type.
func TestPatchedObjectsAreListed(t *testing.T) {
	s := newSite(t)
	s.must("POST", "/control-plane", s.initBody("cp-1"))
	patch := []byte(`{"metadata":{"labels":{"patched":"yes"}}}`)
	core := s.kubernetes().CoreV1()
	if _, err := core.Nodes().Patch(t.Context(), "cp-1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Pods("kube-system").Patch(t.Context(), "kube-scheduler-cp-1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if nodes := s.view().Nodes; len(nodes) != 1 || !nodes[0].Ready {
		t.Fatalf("nodes %+v", nodes)
	}
	s.must("POST", "/nodes/cp-1/stop", nil)
	s.must("POST", "/nodes/cp-1/start", nil)
	node, err := core.Nodes().Get(t.Context(), "cp-1", metav1.GetOptions{})
	if err != nil || node.Labels["patched"] != "yes" || !nodeIsReady(node) {
		t.Fatalf("node %+v, %v", node, err)
	}
}

func TestLeaderMovesWhenItsMachineStops(t *testing.T) {
	s := newSite(t)
	s.must("POST", "/control-plane", s.initBody("cp-1"))
	s.createToken(time.Now().Add(time.Hour))
	s.must("POST", "/control-plane", s.joinBody("cp-2"))
	s.must("POST", "/nodes/cp-1/stop", nil)
	etcd, err := s.etcdClient("cp-2")
	if err != nil {
		t.Fatal(err)
	}
	status, err := etcd.Status(t.Context(), "etcd-cp-2")
	if err != nil {
		t.Fatal(err)
	}
	members, err := etcd.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range members.Members {
		if (member.ID == status.Leader) != (member.Name == "cp-2") {
			t.Fatalf("leader %d, members %v", status.Leader, members.Members)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if down, err := s.etcdClient("cp-1"); err == nil {
		if _, err := down.MemberList(ctx); err == nil {
			t.Fatal("the etcd of a stopped machine answered")
		}
	}
}

func TestEndpointsShareAPort(t *testing.T) {
	s := newSite(t)
	s.must("POST", "/control-plane", s.initBody("cp-1"))
	_, port, _ := net.SplitHostPort(s.endpoint)
	other := *s
	other.endpoint = net.JoinHostPort("127.31.0.2", port)
	other.must("POST", "/control-plane", other.initBody("cp-1"))
	other.endpoint = "192.0.2.1:6443"
	other.refused(400, "loopback", "POST", "/control-plane", other.initBody("cp-1"))
}

func TestMachinesAreChecked(t *testing.T) {
	s := newSite(t)
	for fragment, change := range map[string]func(*controlPlaneMachine){
		"is not a node name":         func(m *controlPlaneMachine) { m.NodeName = "No Name" },
		"is not an IP address":       func(m *controlPlaneMachine) { m.Addresses = []string{"10.0.0.1/24"} },
		"does not look like v1.34.4": func(m *controlPlaneMachine) { m.KubernetesVersion = "1.34" },
		"label a b=c":                func(m *controlPlaneMachine) { m.Labels = map[string]string{"a b": "c"} },
	} {
		body := s.initBody("cp-1")
		change(&body)
		s.refused(400, fragment, "POST", "/control-plane", body)
	}
	s.refused(400, "unknown field", "POST", "/worker", map[string]string{"nodename2": fmt.Sprint(1)})
}
